#include "attend/model/modules/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/support/test_files.h"

namespace attend {
namespace {

using test::expect_error;

// A step of requests with `first[r]` computed tokens and `num_new[r]` new ones.
struct RopeStep {
  std::vector<int32_t> cu_seqlen_q{0}, positions;
  ForwardBatch batch;

  RopeStep(std::vector<int> first, std::vector<int> num_new) {
    for (size_t r = 0; r < first.size(); ++r) {
      for (int j = 0; j < num_new[r]; ++j) positions.push_back(first[r] + j);
      cu_seqlen_q.push_back(static_cast<int32_t>(positions.size()));
    }
    batch.num_reqs = static_cast<int>(first.size());
    batch.num_tokens = static_cast<int>(positions.size());
    batch.cu_seqlen_q = cu_seqlen_q;
    batch.positions = positions;
  }
};

RopeConfig make_config(RopeType type) {
  RopeConfig config;
  config.type = type;
  config.rotary_dim = 16;
  config.original_max_position_embeddings = 64;
  return config;
}

RopeConfig dynamic_config() {
  RopeConfig config = make_config(RopeType::kDynamic);
  config.factor = 2.0;
  config.original_max_position_embeddings = 256;
  return config;
}

std::vector<float> frequencies_of(const RopeConfig& config, int length = 0) {
  std::vector<float> frequencies(static_cast<size_t>(config.rotary_dim / 2));
  rope_frequencies(config, length, frequencies);
  return frequencies;
}

// transformers computes in float32, so its last bits differ from attend's.
void expect_frequencies(const RopeConfig& config, int length, const std::vector<float>& expected) {
  const std::vector<float> frequencies = frequencies_of(config, length);
  ASSERT_EQ(frequencies.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(frequencies[i], expected[i], 5e-7f * expected[i]) << "pair " << i;
}

// Expected values of the following tests: transformers 5.17, rotary_dim 16.
TEST(RopeFrequencies, DefaultMatchesTransformers) {
  expect_frequencies(make_config(RopeType::kDefault), 0,
                     {1.0f, 0.316227764f, 0.100000001f, 0.0316227786f, 0.00999999978f, 0.00316227786f,
                      0.00100000005f, 0.000316227786f});
}

TEST(RopeFrequencies, LinearMatchesTransformers) {
  RopeConfig config = make_config(RopeType::kLinear);
  config.factor = 4.0;
  expect_frequencies(config, 0,
                     {0.25f, 0.079056941f, 0.0250000004f, 0.00790569466f, 0.00249999994f, 0.000790569466f,
                      0.000250000012f, 7.90569466e-05f});
}

TEST(RopeFrequencies, DynamicEqualsDefaultUpToTheOriginalLength) {
  for (const int length : {0, 1, 255, 256})
    EXPECT_EQ(frequencies_of(dynamic_config(), length), frequencies_of(make_config(RopeType::kDefault)));
}

TEST(RopeFrequencies, DynamicBeyondTheOriginalLengthMatchesTransformers) {
  expect_frequencies(dynamic_config(), 257,
                     {1.0f, 0.315876395f, 0.0997778997f, 0.0315174833f, 0.00995562971f, 0.00314474851f,
                      0.000993351801f, 0.0003137764f});
  expect_frequencies(dynamic_config(), 700,
                     {1.0f, 0.25533849f, 0.0651977435f, 0.0166474916f, 0.00425074529f, 0.00108537893f,
                      0.000277139014f, 7.07642612e-05f});
}

TEST(RopeFrequencies, Llama3MatchesTransformersInAllThreeBands) {
  RopeConfig config = make_config(RopeType::kLlama3);
  config.theta = 500000.0;
  config.factor = 8.0;
  expect_frequencies(config, 0,
                     {1.0f, 0.079403013f, 0.00470075384f, 0.000911583134f, 0.000176776681f, 3.42810235e-05f,
                      6.64786967e-06f, 1.28917316e-06f});
}

TEST(RopeFrequencies, YarnMatchesTransformers) {
  RopeConfig config = make_config(RopeType::kYarn);
  config.factor = 4.0;
  expect_frequencies(config, 0,
                     {1.0f, 0.237170815f, 0.049999997f, 0.00790569466f, 0.00249999994f, 0.000790569466f,
                      0.000250000012f, 7.90569466e-05f});
}

TEST(RopeFrequencies, YarnWithAFractionalRampMatchesTransformers) {
  RopeConfig config = make_config(RopeType::kYarn);
  config.factor = 4.0;
  config.truncate = false;
  config.beta_fast = 8.0;
  config.beta_slow = 0.5;
  expect_frequencies(config, 0,
                     {1.0f, 0.238408461f, 0.0442483015f, 0.00790569466f, 0.00249999994f, 0.000790569466f,
                      0.000250000012f, 7.90569466e-05f});
}

TEST(RopeFrequencies, YarnWithAZeroLengthRampIsAStep) {
  RopeConfig config = make_config(RopeType::kYarn);
  config.factor = 4.0;
  config.truncate = false;
  config.beta_fast = config.beta_slow = 2.0;
  expect_frequencies(config, 0,
                     {1.0f, 0.316227764f, 0.0250000004f, 0.00790569466f, 0.00249999994f, 0.000790569466f,
                      0.000250000012f, 7.90569466e-05f});
}

TEST(RopeAttentionFactor, IsOneExceptForYarn) {
  for (const RopeType type : {RopeType::kDefault, RopeType::kLinear, RopeType::kDynamic, RopeType::kLlama3}) {
    RopeConfig config = make_config(type);
    config.factor = 8.0;
    EXPECT_EQ(rope_attention_factor(config), 1.0f);
  }
}

TEST(RopeAttentionFactor, YarnMatchesTransformers) {
  RopeConfig config = make_config(RopeType::kYarn);
  config.factor = 4.0;
  EXPECT_FLOAT_EQ(rope_attention_factor(config), 1.138629436f);
  config.factor = 0.5;  // a factor below 1 does not scale
  EXPECT_EQ(rope_attention_factor(config), 1.0f);
  config.factor = 40.0;
  config.mscale = 0.707;
  EXPECT_FLOAT_EQ(rope_attention_factor(config), 1.368887945f) << "mscale is ignored without mscale_all_dim";
  config.mscale_all_dim = 1.0;
  EXPECT_FLOAT_EQ(rope_attention_factor(config), 0.921042355f);
  config.attention_factor = 1.5;
  EXPECT_EQ(rope_attention_factor(config), 1.5f) << "an explicit factor overrides the formula";
}

RopeRows rows_of(RopeTable& table, const ForwardBatch& batch, View<const int32_t> prompt_lens) {
  Stream stream;
  return table.rows(batch, prompt_lens, stream);
}

TEST(RopeTable, EachRowHoldsCosinesAndSinesOfItsPosition) {
  RopeConfig config = make_config(RopeType::kYarn);
  config.factor = 4.0;
  RopeTable table(config, 100, 8);
  const RopeStep step({0, 97}, {2, 3});
  const RopeRows rows = rows_of(table, step.batch, {});
  EXPECT_EQ(rows.cos.shape[0], 100);
  EXPECT_EQ(rows.positions.data(), step.positions.data());
  const std::vector<float> frequencies = frequencies_of(config);
  const double factor = rope_attention_factor(config);
  for (const int32_t p : rows.positions)
    for (size_t i = 0; i < frequencies.size(); ++i) {
      EXPECT_NEAR(rows.cos[p].as<float>()[i], factor * std::cos(double{p * frequencies[i]}), 2e-7);
      EXPECT_NEAR(rows.sin[p].as<float>()[i], factor * std::sin(double{p * frequencies[i]}), 2e-7);
    }
}

TEST(RopeTable, RejectsAPositionOutOfRange) {
  RopeTable table(make_config(RopeType::kDefault), 100, 8);
  const RopeStep step({99}, {2});
  expect_error(ErrorCode::kInvalidArgument, {"position 100", "0 to 99"},
               [&] { rows_of(table, step.batch, {}); });
}

// Cosines and sines of token `token` as one list.
std::vector<float> angles_of(const RopeRows& rows, size_t token) {
  const int32_t row = rows.positions[token];
  const int64_t pairs = rows.cos.shape[1];
  std::vector<float> values(rows.cos[row].as<float>(), rows.cos[row].as<float>() + pairs);
  values.insert(values.end(), rows.sin[row].as<float>(), rows.sin[row].as<float>() + pairs);
  return values;
}

std::vector<float> angles_of(const RopeConfig& config, int position, int length) {
  const std::vector<float> frequencies = frequencies_of(config, length);
  std::vector<float> values;
  for (const float f : frequencies)
    values.push_back(static_cast<float>(std::cos(double{static_cast<float>(position) * f})));
  for (const float f : frequencies)
    values.push_back(static_cast<float>(std::sin(double{static_cast<float>(position) * f})));
  return values;
}

TEST(RopeTable, DynamicUsesThePromptLengthForPromptTokensAndTheOwnLengthForLaterTokens) {
  const RopeConfig config = dynamic_config();
  RopeTable table(config, 512, 16);
  const RopeStep step({298}, {4});  // positions 298 and 299 belong to the prompt, 300 and 301 follow it
  const std::vector<int32_t> prompt_lens{300};
  const RopeRows rows = rows_of(table, step.batch, prompt_lens);
  EXPECT_EQ(angles_of(rows, 0), angles_of(config, 298, 300));
  EXPECT_EQ(angles_of(rows, 1), angles_of(config, 299, 300));
  EXPECT_EQ(angles_of(rows, 2), angles_of(config, 300, 301));
  EXPECT_EQ(angles_of(rows, 3), angles_of(config, 301, 302));
}

TEST(RopeTable, DynamicRowIsTheSameSingleChunkedAndInABatch) {
  const RopeConfig config = dynamic_config();
  RopeTable table(config, 512, 400);
  const RopeStep whole({0}, {300});
  const std::vector<int32_t> long_prompt{300}, both{20, 300};
  const std::vector<float> expected = angles_of(rows_of(table, whole.batch, long_prompt), 290);
  const RopeStep chunk({280}, {20});
  EXPECT_EQ(angles_of(rows_of(table, chunk.batch, long_prompt), 10), expected);
  const RopeStep batch({0, 288}, {20, 12});
  EXPECT_EQ(angles_of(rows_of(table, batch.batch, both), 22), expected);
}

RopeConfig long_config() {
  RopeConfig config = make_config(RopeType::kLongRope);
  config.factor = 4.0;
  config.original_max_position_embeddings = 64;
  for (int i = 0; i < config.rotary_dim / 2; ++i) {
    config.short_factor.push_back(1.0 + 0.1 * i);
    config.long_factor.push_back(2.0 + i);
  }
  return config;
}

TEST(RopeFrequencies, LongRopeSelectsFactorsByLength) {
  const RopeConfig config = long_config();
  const std::vector<float> plain = frequencies_of(make_config(RopeType::kDefault));
  for (const int length : {0, 64, 65, 1000}) {
    const std::vector<double>& factors = length > 64 ? config.long_factor : config.short_factor;
    const std::vector<float> frequencies = frequencies_of(config, length);
    for (size_t i = 0; i < plain.size(); ++i)
      EXPECT_NEAR(frequencies[i], plain[i] / factors[i], 1e-7 * plain[i]) << length;
  }
}

TEST(RopeFrequencies, LongRopeScalesAllLengthsEqually) {
  RopeConfig config = long_config();
  EXPECT_FLOAT_EQ(rope_attention_factor(config),
                  static_cast<float>(std::sqrt(1.0 + std::log(4.0) / std::log(64.0))));
  config.factor = 32.0;
  config.original_max_position_embeddings = 4096;
  EXPECT_NEAR(rope_attention_factor(config), 1.19024, 1e-5);
  config.attention_factor = 1.5;
  EXPECT_EQ(rope_attention_factor(config), 1.5f);
}

TEST(RopeTable, LongRopeRotatesByTheLengthOfTheRequestInAnyBatch) {
  RopeConfig config = long_config();
  config.attention_factor = 1.0;
  RopeTable table(config, 512, 16);
  // A prompt below 64, a chunk of a prompt above 64, and a request that crosses 64 while it generates.
  const RopeStep step({30, 10, 63}, {2, 2, 2});
  const std::vector<int32_t> prompt_lens{32, 100, 63};
  const RopeRows rows = rows_of(table, step.batch, prompt_lens);
  EXPECT_EQ(angles_of(rows, 0), angles_of(config, 30, 32));
  EXPECT_EQ(angles_of(rows, 1), angles_of(config, 31, 32));
  EXPECT_EQ(angles_of(rows, 2), angles_of(config, 10, 100));
  EXPECT_EQ(angles_of(rows, 3), angles_of(config, 11, 100));
  EXPECT_EQ(angles_of(rows, 4), angles_of(config, 63, 64));
  EXPECT_EQ(angles_of(rows, 5), angles_of(config, 64, 65));
  expect_error(ErrorCode::kInvalidArgument, {"prompt_lens of 0", "longrope", "3"},
               [&] { rows_of(table, step.batch, {}); });
  const RopeStep beyond({511}, {2});
  expect_error(ErrorCode::kInvalidArgument, {"position 512", "0 to 511"},
               [&] { rows_of(table, beyond.batch, View<const int32_t>(prompt_lens).first(1)); });
}

TEST(RopeTable, DynamicDoesNotRotatePaddingTokens) {
  RopeTable table(dynamic_config(), 512, 8);
  RopeStep step({5}, {1});
  step.positions.resize(3, 0);
  step.batch.positions = step.positions;
  step.batch.num_tokens = 3;
  const std::vector<int32_t> prompt_lens{6};
  const RopeRows rows = rows_of(table, step.batch, prompt_lens);
  const std::vector<float> identity{1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(angles_of(rows, 1), identity);
  EXPECT_EQ(angles_of(rows, 2), identity);
  EXPECT_EQ(angles_of(rows, 0), angles_of(dynamic_config(), 5, 6));
}

TEST(RopeTable, DynamicRejectsAStepWithoutPromptLengthsOrWithTooManyTokens) {
  RopeTable table(dynamic_config(), 512, 2);
  const std::vector<int32_t> prompt_lens{3};
  const RopeStep two({0}, {2}), three({0}, {3});
  expect_error(ErrorCode::kInvalidArgument, {"prompt_lens of 0", "dynamic", "1"},
               [&] { rows_of(table, two.batch, {}); });
  expect_error(ErrorCode::kInvalidArgument, {"num_tokens 3", "2"},
               [&] { rows_of(table, three.batch, prompt_lens); });
}

}  // namespace
}  // namespace attend
