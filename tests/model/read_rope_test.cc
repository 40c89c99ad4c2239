#include <gtest/gtest.h>

#include "tests/model/config_fields.h"

namespace attend {
namespace {

using test::expect_rejected;
using test::llama;

TEST(ReadRope, ReadsEachTypeUnderBothKeys) {
  EXPECT_EQ(llama({{"rope_scaling", "null"}}).ropes[0].type, RopeType::kDefault);
  EXPECT_EQ(llama({{"rope_scaling", R"({"rope_type": "default"})"}}).ropes[0].type, RopeType::kDefault);
  const RopeConfig linear = llama({{"rope_scaling", R"({"type": "linear", "factor": 4})"}}).ropes[0];
  EXPECT_EQ(linear.type, RopeType::kLinear);
  EXPECT_EQ(linear.factor, 4.0);
  const RopeConfig dynamic =
      llama(
          {{"rope_scaling",
            R"({"rope_type": "dynamic", "type": "linear", "factor": 2.5, "original_max_position_embeddings": 9})"}})
          .ropes[0];
  EXPECT_EQ(dynamic.type, RopeType::kDynamic);
  EXPECT_EQ(dynamic.factor, 2.5);
  EXPECT_EQ(dynamic.original_max_position_embeddings, 256)
      << "transformers scales by max_position_embeddings";
}

// Fields of longrope for heads of 16.
std::string longrope(const std::string& more, const std::string& type = "longrope", int num_factors = 8) {
  std::string factors;
  for (int i = 0; i < num_factors; ++i) factors += (i ? ", " : "") + std::to_string(i + 1);
  return "{\"type\": \"" + type + "\", \"short_factor\": [1, 1, 1, 1, 1, 1, 1, 1], \"long_factor\": [" +
         factors + "]" + more + "}";
}

TEST(ReadRope, ReadsLongRopeUnderEachName) {
  for (const char* type : {"longrope", "su", "yarn"}) {
    const RopeConfig rope =
        llama({{"rope_scaling", longrope("", type)}, {"original_max_position_embeddings", "64"}}).ropes[0];
    EXPECT_EQ(rope.type, RopeType::kLongRope) << type;
    EXPECT_EQ(rope.original_max_position_embeddings, 64);
    EXPECT_EQ(rope.factor, 4.0) << "max_position_embeddings 256";
    EXPECT_EQ(rope.short_factor, std::vector<double>(8, 1.0));
    EXPECT_EQ(rope.long_factor, (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}));
  }
  EXPECT_EQ(llama({{"rope_scaling", longrope(R"(, "factor": 9, "attention_factor": 1.5)")}}).ropes[0].factor,
            9.0);
  EXPECT_EQ(llama({{"rope_scaling", longrope(R"(, "attention_factor": 1.5)")}}).ropes[0].attention_factor,
            1.5);
  EXPECT_EQ(llama({{"rope_scaling", longrope("")}}).ropes[0].original_max_position_embeddings, 256);
  const ModelSpec phi =
      test::read("Phi3ForCausalLM", {{"rope_scaling", longrope("")}, {"max_position_embeddings", "131072"}});
  EXPECT_EQ(phi.ropes[0].original_max_position_embeddings, 4096);
  EXPECT_EQ(phi.ropes[0].factor, 32.0);
}

TEST(ReadRope, RejectsALongRopeWithoutAFactorForEachPair) {
  expect_rejected({{"rope_scaling", longrope("", "longrope", 7)}}, ErrorCode::kCorruptFile,
                  {"rope_scaling.long_factor", "an array of 8 numbers"});
  expect_rejected({{"rope_scaling", R"({"type": "longrope"})"}}, ErrorCode::kCorruptFile,
                  {"short_factor", "missing"});
  expect_rejected({{"rope_scaling", R"({"type": "longrope", "short_factor": [1, 1, 1, 1, 0, 1, 1, 1]})"}},
                  ErrorCode::kCorruptFile, {"short_factor[4]", "a number above 0"});
  for (const char* factor : {"1e-30", "10000000.0"})
    expect_rejected({{"rope_scaling", R"({"type": "longrope", "short_factor": [)" + std::string(factor) +
                                          ", 1, 1, 1, 1, 1, 1, 1]}"}},
                    ErrorCode::kCorruptFile, {"short_factor[0]", factor, "to 1048576"});
  expect_rejected({{"rope_scaling", longrope("")}, {"original_max_position_embeddings", "1"}},
                  ErrorCode::kCorruptFile, {"original_max_position_embeddings", "from 2"});
}

TEST(ReadRope, ReadsLlama3) {
  const RopeConfig rope = llama({{"rope_scaling",
                                  R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                                      "high_freq_factor": 4, "original_max_position_embeddings": 32})"}})
                              .ropes[0];
  EXPECT_EQ(rope.type, RopeType::kLlama3);
  EXPECT_EQ(rope.factor, 8.0);
  EXPECT_EQ(rope.low_freq_factor, 1.0);
  EXPECT_EQ(rope.high_freq_factor, 4.0);
  EXPECT_EQ(rope.original_max_position_embeddings, 32);
}

TEST(ReadRope, ReadsYarnAndItsDefaults) {
  const RopeConfig given = llama({{"rope_scaling",
                                   R"({"rope_type": "yarn", "factor": 8, "beta_fast": 16, "beta_slow": 2,
                                       "attention_factor": 1.5, "mscale": 0.7, "mscale_all_dim": 1,
                                       "truncate": false, "original_max_position_embeddings": 32})"}})
                               .ropes[0];
  EXPECT_EQ(given.type, RopeType::kYarn);
  EXPECT_EQ(given.factor, 8.0);
  EXPECT_EQ(given.beta_fast, 16.0);
  EXPECT_EQ(given.beta_slow, 2.0);
  EXPECT_EQ(given.attention_factor, 1.5);
  EXPECT_EQ(given.mscale, 0.7);
  EXPECT_EQ(given.mscale_all_dim, 1.0);
  EXPECT_FALSE(given.truncate);
  EXPECT_EQ(given.original_max_position_embeddings, 32);

  const RopeConfig bare = llama({{"rope_scaling", R"({"type": "yarn", "factor": 4})"}}).ropes[0];
  EXPECT_EQ(bare.beta_fast, 32.0);
  EXPECT_EQ(bare.beta_slow, 1.0);
  EXPECT_EQ(bare.attention_factor, 0.0);
  EXPECT_TRUE(bare.truncate);
  EXPECT_EQ(bare.original_max_position_embeddings, 256);
}

TEST(ReadRope, YarnWithoutAFactorUsesMaxPositionEmbeddings) {
  const char* scaling = R"({"type": "yarn", "factor": null, "original_max_position_embeddings": 64})";
  EXPECT_EQ(llama({{"rope_scaling", scaling}}).ropes[0].factor, 4.0);
}

TEST(ReadRope, TopLevelOriginalLengthOverridesRopeScaling) {
  const char* scaling = R"({"type": "yarn", "factor": 4, "original_max_position_embeddings": 64})";
  EXPECT_EQ(llama({{"rope_scaling", scaling}, {"original_max_position_embeddings", "32"}})
                .ropes[0]
                .original_max_position_embeddings,
            32);
}

TEST(ReadRope, ReadsRopeParametersAsTransformers5WritesThem) {
  const RopeConfig rope = llama({{"rope_parameters",
                                  R"({"rope_type": "llama3", "rope_theta": 50000, "factor": 4,
                                      "low_freq_factor": 1, "high_freq_factor": 4})"}})
                              .ropes[0];
  EXPECT_EQ(rope.type, RopeType::kLlama3);
  EXPECT_EQ(rope.theta, 50000.0);
  EXPECT_EQ(rope.original_max_position_embeddings, 256);
  EXPECT_EQ(llama({{"rope_parameters", R"({"rope_theta": 50000})"}}).ropes[0].theta, 50000.0);
  EXPECT_EQ(
      llama({{"rope_parameters", R"({"rope_type": "default"})"}, {"rope_theta", "7000"}}).ropes[0].theta,
      7000.0);
}

TEST(ReadRope, ReadsAPartialRotaryFactorInEitherPlace) {
  EXPECT_EQ(llama({{"partial_rotary_factor", "0.5"}}).ropes[0].rotary_dim, 8);
  EXPECT_EQ(llama({{"rope_parameters", R"({"rope_theta": 50000, "partial_rotary_factor": 0.25})"}})
                .ropes[0]
                .rotary_dim,
            4);
}

TEST(ReadRope, RejectsARotaryDimThatIsNotEvenOrTooSmall) {
  for (const char* share : {"0.3125", "1.5", "0.125"})  // 5, 24 and 2 dimensions of 16
    expect_rejected({{"partial_rotary_factor", share}}, ErrorCode::kCorruptFile,
                    {"partial_rotary_factor", share, "head_dim 16"});
  for (const char* head_dim : {"33", "2"})
    expect_rejected({{"head_dim", head_dim}}, ErrorCode::kCorruptFile, {"head_dim", head_dim, "even"});
}

TEST(ReadRope, RejectsAnUnknownTypeWithTheKnownOnes) {
  expect_rejected({{"rope_scaling", R"({"rope_type": "axial", "factor": 2})"}}, ErrorCode::kUnsupported,
                  {"rope_scaling.rope_type \"axial\"", "default, linear, dynamic, llama3, yarn, longrope"});
  expect_rejected({{"rope_scaling", R"({"type": "ntk"})"}}, ErrorCode::kUnsupported,
                  {"rope_scaling.type \"ntk\"", "yarn"});
  expect_rejected({{"rope_parameters", R"({"full_attention": {"rope_type": "default"}})"}},
                  ErrorCode::kUnsupported, {"rope_parameters.full_attention", "all layers"});
}

TEST(ReadRope, RejectsAFactorBelowOne) {
  for (const char* type : {"linear", "dynamic", "yarn"})
    for (const char* factor : {"0.5", "1048577", "1e300", "-4"}) {
      const std::string scaling =
          R"({"rope_type": ")" + std::string(type) + R"(", "factor": )" + factor + "}";
      expect_rejected({{"rope_scaling", scaling}}, ErrorCode::kCorruptFile,
                      {"rope_scaling.factor", "expected a number"});
    }
  expect_rejected(
      {{"rope_scaling",
        R"({"rope_type": "llama3", "factor": 0.5, "low_freq_factor": 1, "high_freq_factor": 4})"}},
      ErrorCode::kCorruptFile, {"rope_scaling.factor 0.5", "from 1 to 1048576"});
}

// transformers warns.
TEST(ReadRope, AcceptsAnOriginalLengthAboveThePositions) {
  const ModelSpec spec =
      llama({{"rope_scaling", R"({"type": "yarn", "factor": 4, "original_max_position_embeddings": 512})"}});
  EXPECT_EQ(spec.ropes[0].original_max_position_embeddings, 512);
  EXPECT_EQ(spec.max_context_len(), 2048);
}

TEST(ReadRope, RejectsIncompleteOrContradictoryYarn) {
  expect_rejected({{"rope_scaling", R"({"type": "yarn"})"}}, ErrorCode::kCorruptFile,
                  {"rope_scaling.factor is missing"});
  // Without a smaller original length, a null factor cannot be derived.
  expect_rejected({{"rope_scaling", R"({"type": "yarn", "factor": null})"}}, ErrorCode::kCorruptFile,
                  {"rope_scaling.factor is missing"});
  for (const char* betas : {R"("beta_fast": 1)", R"("beta_slow": 32)", R"("beta_fast": 2, "beta_slow": 3)"})
    expect_rejected({{"rope_scaling", R"({"type": "yarn", "factor": 4, )" + std::string(betas) + "}"}},
                    ErrorCode::kCorruptFile, {"rope_scaling.beta_fast", "more than beta_slow"});
  for (const char* field : {"beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim"})
    for (const char* value : {"0", "-1", "\"1\"", "1e300", "1e-300", "true"})
      expect_rejected({{"rope_scaling",
                        R"({"type": "yarn", "factor": 4, ")" + std::string(field) + "\": " + value + "}"}},
                      ErrorCode::kCorruptFile, {std::string("rope_scaling.") + field, "a number above 0"});
}

TEST(ReadRope, RejectsYarnThatOverflowsScores) {
  for (const char* field : {"attention_factor", "mscale", "mscale_all_dim"})
    expect_rejected(
        {{"rope_scaling", R"({"type": "yarn", "factor": 4, ")" + std::string(field) + "\": 1e38}"}},
        ErrorCode::kCorruptFile, {std::string("rope_scaling.") + field + " 1e+38", "at most 1024"});
}

TEST(ReadRope, RejectsAMissingParameterOrAWrongType) {
  for (const char* type : {"linear", "dynamic", "llama3"}) {
    const std::string scaling = R"({"rope_type": ")" + std::string(type) + "\"}";
    expect_rejected({{"rope_scaling", scaling}}, ErrorCode::kCorruptFile,
                    {"rope_scaling.factor", "missing", "a number above 0"});
  }
  expect_rejected({{"rope_scaling", R"({"rope_type": "linear", "factor": "4"})"}}, ErrorCode::kCorruptFile,
                  {"rope_scaling.factor \"4\"", "a number above 0"});
  expect_rejected({{"rope_scaling", R"({"rope_type": "linear", "factor": 0})"}}, ErrorCode::kCorruptFile,
                  {"rope_scaling.factor 0", "a number above 0"});
  expect_rejected({{"rope_scaling", R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1})"}},
                  ErrorCode::kCorruptFile, {"rope_scaling.high_freq_factor", "missing"});
  expect_rejected({{"rope_scaling",
                    R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4})"}},
                  ErrorCode::kCorruptFile, {"rope_scaling.high_freq_factor 4", "more than low_freq_factor"});
  expect_rejected({{"rope_scaling", R"({"rope_type": "yarn", "factor": 4, "truncate": 1})"}},
                  ErrorCode::kCorruptFile, {"rope_scaling.truncate 1", "true or false"});
  expect_rejected({{"rope_scaling", R"({"rope_type": 4})"}}, ErrorCode::kCorruptFile,
                  {"rope_scaling.rope_type 4", "a string"});
  expect_rejected({{"rope_scaling", "\"linear\""}}, ErrorCode::kCorruptFile,
                  {"rope_scaling \"linear\"", "a JSON object"});
}

}  // namespace
}  // namespace attend
