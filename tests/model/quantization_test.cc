// Fields of quantization_config, and unsupported methods that are rejected before weights are read.
#include "attend/model/config/quantization.h"

#include <gtest/gtest.h>

#include "attend/model/model.h"
#include "tests/model/config_fields.h"

namespace attend {
namespace {

using test::expect_error;
using test::llama;

Quantization parse_quantization(const std::string& json) {
  return llama({{"quantization_config", json}}).quantization;
}

void expect_quantization_rejected(const std::string& json, ErrorCode code,
                                  std::initializer_list<std::string_view> parts) {
  expect_error(code, parts, [&] { parse_quantization(json); });
}

std::string compressed(const std::string& format, const std::string& weights) {
  return R"({"quant_method": "compressed-tensors", "format": ")" + format +
         R"(", "config_groups": {"group_0": {"targets": ["Linear"], "weights": )" + weights + "}}}";
}

TEST(Quantization, IsPlainWithoutAConfig) {
  EXPECT_EQ(llama().quantization.storage, WeightStorage::kPlain);
  EXPECT_EQ(parse_quantization("null").storage, WeightStorage::kPlain);
  EXPECT_EQ(to_string(llama().quantization), "");
}

TEST(Quantization, DescribesTheFormatOfEachMethod) {
  EXPECT_EQ(to_string(parse_quantization(R"({"quant_method": "fp8", "activation_scheme": "static"})")),
            "fp8 (fp8)");
  EXPECT_EQ(to_string(parse_quantization(
                R"({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]})")),
            "fp8 in blocks of 128 x 128 (fp8)");
  EXPECT_EQ(to_string(parse_quantization(
                R"({"quant_method": "fp8", "fmt": "float8_e4m3fn", "weight_block_size": null})")),
            "fp8 (fp8)");
  EXPECT_EQ(to_string(parse_quantization(R"({"quant_method": "modelopt", "quant_algo": "FP8"})")),
            "fp8 (modelopt)");
  EXPECT_EQ(to_string(parse_quantization(
                R"({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"})")),
            "int4 in groups of 128 (awq)");
  EXPECT_EQ(to_string(parse_quantization(R"({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0})")),
            "fp8 (fbgemm_fp8)");
  const Quantization gptq =
      parse_quantization(R"({"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": true})");
  EXPECT_EQ(to_string(gptq), "int4 by act-order (gptq)");
  EXPECT_TRUE(gptq.zeros_less_one && gptq.reorders);
  EXPECT_FALSE(
      parse_quantization(
          R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "gptq_v2"})")
          .zeros_less_one);
  EXPECT_EQ(to_string(parse_quantization(
                compressed("pack-quantized", R"({"num_bits": 4, "type": "int", "group_size": 64})"))),
            "int4 in groups of 64 (compressed-tensors)");
  EXPECT_TRUE(parse_quantization(
                  compressed("pack-quantized", R"({"num_bits": 4, "group_size": 64, "actorder": "group"})"))
                  .reorders);
  EXPECT_FALSE(parse_quantization(
                   compressed("pack-quantized", R"({"num_bits": 4, "group_size": 64, "actorder": "static"})"))
                   .reorders);
  EXPECT_EQ(
      to_string(parse_quantization(compressed("float-quantized", R"({"num_bits": 8, "type": "float"})"))),
      "fp8 (compressed-tensors)");
  EXPECT_EQ(to_string(parse_quantization(compressed(
                "float-quantized", R"({"num_bits": 8, "type": "float", "block_structure": [128, 128]})"))),
            "fp8 in blocks of 128 x 128 (compressed-tensors)");
  EXPECT_EQ(
      to_string(parse_quantization(compressed(
          "int-quantized", R"({"num_bits": 8, "type": "int", "strategy": "channel", "group_size": null})"))),
      "int8 (compressed-tensors)");
  EXPECT_EQ(to_string(parse_quantization(
                compressed("pack-quantized", R"({"num_bits": 8, "type": "int", "group_size": 128})"))),
            "int8 in groups of 128 (compressed-tensors)");
  const Quantization of_bytes =
      parse_quantization(R"({"quant_method": "gptq", "bits": 8, "group_size": 128})");
  EXPECT_EQ(to_string(of_bytes), "int8 in groups of 128 (gptq)");
  EXPECT_EQ(of_bytes.storage, WeightStorage::kGptqInt8);
  EXPECT_DOUBLE_EQ(bytes_per_weight(of_bytes), 1.0 + 4.0 / 128);
  EXPECT_EQ(to_string(parse_quantization(R"({"quant_method": "mxfp4"})")), "mxfp4 in groups of 32 (mxfp4)");
}

// A missing tensor would change the dequantized weights.
TEST(Quantization, ListsRequiredTensors) {
  const auto packed = [](const std::string& more) {
    return parse_quantization(
        compressed("pack-quantized", R"({"num_bits": 4, "type": "int", "group_size": 32)" + more + "}"));
  };
  EXPECT_FALSE(packed("").has_zeros);
  EXPECT_FALSE(packed(R"(, "symmetric": true)").has_zeros);
  EXPECT_TRUE(packed(R"(, "symmetric": false)").has_zeros);
  EXPECT_TRUE(
      parse_quantization(compressed("int-quantized", R"({"num_bits": 8, "symmetric": false})")).has_zeros);
  for (const char* const order : {"true", "\"group\"", "\"dynamic\""})
    EXPECT_TRUE(packed(std::string(R"(, "actorder": )") + order).reorders) << order;
  for (const char* const order : {"false", "null", "\"weight\"", "\"static\""})
    EXPECT_FALSE(packed(std::string(R"(, "actorder": )") + order).reorders) << order;
}

TEST(Quantization, ReadsGptqFormatUnderBothNames) {
  const auto of = [](const std::string& more) {
    return R"({"quant_method": "gptq", "bits": 4)" + more + "}";
  };
  EXPECT_TRUE(parse_quantization(of("")).zeros_less_one);
  EXPECT_FALSE(parse_quantization(of(R"(, "format": "gptq_v2")")).zeros_less_one);
  EXPECT_FALSE(parse_quantization(of(R"(, "checkpoint_format": "gptq_v2")")).zeros_less_one);
  EXPECT_TRUE(parse_quantization(of(R"(, "format": "gptq", "checkpoint_format": "gptq")")).zeros_less_one);
  expect_quantization_rejected(of(R"(, "format": "gptq_p")"), ErrorCode::kUnsupported,
                               {"format \"gptq_p\": attend supports gptq, gptq_v2"});
}

TEST(Quantization, ReadsAutoRoundInGptqAndAwqPacking) {
  const auto of = [](const std::string& rest) {
    return R"({"quant_method": "auto-round", "bits": 4, "group_size": 128, )" + rest + "}";
  };
  const Quantization gptq = parse_quantization(of(R"("packing_format": "auto_round:auto_gptq")"));
  EXPECT_EQ(to_string(gptq), "int4 in groups of 128 (auto-round)");
  EXPECT_EQ(gptq.storage, WeightStorage::kGptq);
  EXPECT_TRUE(gptq.zeros_less_one);
  EXPECT_EQ(parse_quantization(of(R"("packing_format": "auto_round:auto_awq")")).storage,
            WeightStorage::kAwq);
  EXPECT_EQ(parse_quantization(
                R"({"quant_method": "intel/auto-round", "bits": 4, "backend": "auto_round:gptq:exllamav2"})")
                .storage,
            WeightStorage::kGptq);
  EXPECT_EQ(
      to_string(parse_quantization(of(
          R"("packing_format": "auto_round:auto_gptq", "extra_config": {"a": {"bits": 16}, "b": {"bits": 4}})"))),
      "int4 in groups of 128 (auto-round)");
  expect_quantization_rejected(
      of(R"("packing_format": "auto_round:auto_gptq", "extra_config": {"a": {"bits": 2}})"),
      ErrorCode::kUnsupported, {"extra_config.a.bits 2: attend supports 4, 8"});
  expect_quantization_rejected(
      of(R"("packing_format": "auto_round:exllamav2")"), ErrorCode::kUnsupported,
      {"packing_format \"auto_round:exllamav2\"", "auto_round:auto_awq, auto_round:auto_gptq"});
}

TEST(Quantization, ListsTheFormatsOfLayerOverrides) {
  const Quantization gptq = parse_quantization(
      R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"a": {"bits": 8},
          "b": {"bits": 8, "group_size": 128}, "+:c": {"group_size": 32, "desc_act": true}, "-:d": {}}})");
  EXPECT_EQ(to_string(gptq),
            "int4 in groups of 128 and int4 in groups of 32 by act-order and int8 in groups of 128 (gptq)");
  EXPECT_EQ(num_kinds(gptq), 3u);
  EXPECT_EQ(weight_kind(gptq, 2).storage, WeightStorage::kGptqInt8);
  EXPECT_TRUE(weight_kind(gptq, 2).zeros_less_one);
  EXPECT_EQ(weight_kind(gptq, 2).method, "gptq");
  const Quantization mixed = parse_quantization(
      R"({"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": {
          "group_0": {"format": "float-quantized", "weights": {"num_bits": 8, "type": "float"},
                      "input_activations": {"num_bits": 8}},
          "group_1": {"format": "pack-quantized", "weights": {"num_bits": 4, "type": "int", "group_size": 64}},
          "group_2": {"targets": ["Attention"], "weights": null}}})");
  EXPECT_EQ(to_string(mixed), "fp8 and int4 in groups of 64 (compressed-tensors)");
  EXPECT_TRUE(mixed.rounds_x);
  expect_quantization_rejected(
      R"({"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": {
          "group_0": {"format": "nvfp4-pack-quantized", "weights": {"num_bits": 4, "type": "float"}}}})",
      ErrorCode::kUnsupported, {"group_0.format \"nvfp4-pack-quantized\": attend supports float-quantized"});
  expect_quantization_rejected(
      R"({"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": {
          "group_0": {"weights": {"num_bits": 4, "type": "int"}}}})",
      ErrorCode::kUnsupported, {"format \"mixed-precision\": attend supports float-quantized"});
}

TEST(Quantization, RejectsTooManyOverrides) {
  const auto of_kinds = [](int count) {
    std::string layers;
    for (int i = 1; i < count; ++i)
      layers += (i == 1 ? "" : ", ") + ("\"+:" + std::to_string(i)) + R"(": {"group_size": )" +
                std::to_string(32 * i) + "}";
    return R"({"quant_method": "gptq", "bits": 4, "dynamic": {)" + layers + "}}";
  };
  EXPECT_EQ(num_kinds(parse_quantization(of_kinds(64))), 64u);
  expect_quantization_rejected(
      of_kinds(65), ErrorCode::kUnsupported,
      {"dynamic.+:", "differs from 64 kinds of layers before it: attend supports up to 64"});
}

TEST(Quantization, ReportsWhetherActivationsAreRoundedToFp8) {
  EXPECT_TRUE(parse_quantization(R"({"quant_method": "fp8", "activation_scheme": "dynamic"})").rounds_x);
  EXPECT_TRUE(parse_quantization(R"({"quant_method": "fp8", "activation_scheme": "static"})").rounds_x);
  EXPECT_FALSE(parse_quantization(R"({"quant_method": "fp8"})").rounds_x);
  EXPECT_TRUE(parse_quantization(R"({"quant_method": "modelopt", "quant_algo": "FP8"})").rounds_x);
  const auto of_compressed = [](const std::string& format, const std::string& group) {
    return parse_quantization(R"({"quant_method": "compressed-tensors", "format": ")" + format +
                              R"(", "config_groups": {"group_0": )" + group + "}}")
        .rounds_x;
  };
  const std::string weights = R"("weights": {"num_bits": 8, "type": "float", "strategy": "channel"})";
  EXPECT_TRUE(of_compressed("float-quantized",
                            "{" + weights + R"(, "input_activations": {"num_bits": 8, "type": "float"}})"));
  EXPECT_FALSE(of_compressed("float-quantized", "{" + weights + R"(, "input_activations": null})"));
  EXPECT_FALSE(of_compressed("pack-quantized",
                             R"({"weights": {"num_bits": 4, "group_size": 32}, "input_activations": {}})"));
}

TEST(Quantization, ReadsModelOptConfig) {
  const test::TempDir dir;
  dir.write("config.json", test::json_of(test::base_fields("LlamaForCausalLM")));
  dir.write("hf_quant_config.json",
            R"({"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}})");
  EXPECT_EQ(to_string(read_config(dir.path()).quantization), "fp8 (modelopt)");
  dir.write("hf_quant_config.json", R"({"quantization": {"quant_algo": "NVFP4"}})");
  expect_error(ErrorCode::kUnsupported, {"hf_quant_config.json", "quant_algo \"NVFP4\": attend supports FP8"},
               [&] { read_config(dir.path()); });
}

TEST(Quantization, RejectsUnsupportedMethods) {
  expect_quantization_rejected(R"({"quant_method": "bitsandbytes"})", ErrorCode::kUnsupported,
                               {"quant_method \"bitsandbytes\"",
                                "auto-round, awq, compressed-tensors, fbgemm_fp8, fp8, gguf, gptq, "
                                "intel/auto-round, modelopt, mxfp4"});
  expect_quantization_rejected("{}", ErrorCode::kUnsupported, {"quant_method \"?\""});
  expect_quantization_rejected(R"({"quant_method": "gptq", "bits": 3})", ErrorCode::kUnsupported,
                               {"bits 3: attend supports 4, 8"});
  expect_quantization_rejected(R"({"quant_method": "awq", "bits": 8})", ErrorCode::kUnsupported,
                               {"bits 8: attend supports 4"});
  expect_quantization_rejected(R"({"quant_method": "gptq", "bits": 4, "group_size": 8})",
                               ErrorCode::kUnsupported, {"group_size 8: attend supports multiples of 32"});
  expect_quantization_rejected(R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"})",
                               ErrorCode::kUnsupported,
                               {"checkpoint_format \"marlin\": attend supports gptq, gptq_v2"});
  expect_quantization_rejected(R"({"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*": {"bits": 3}}})",
                               ErrorCode::kUnsupported, {"dynamic.+:.*", "bits 3: attend supports 4, 8"});
  EXPECT_NO_THROW(
      parse_quantization(R"({"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*down.*": {}}})"));
  EXPECT_NO_THROW(parse_quantization(
      R"({"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*": {"bits": 4, "sym": true}}})"));
  expect_quantization_rejected(R"({"quant_method": "awq", "bits": 4, "version": "gemv"})",
                               ErrorCode::kUnsupported, {"version \"gemv\": attend supports gemm"});
  expect_quantization_rejected(R"({"quant_method": "fp8", "fmt": "e5m2"})", ErrorCode::kUnsupported,
                               {"fmt \"e5m2\": attend supports e4m3, float8_e4m3fn"});
  expect_quantization_rejected(R"({"quant_method": "fp8", "weight_block_size": [128, 100]})",
                               ErrorCode::kUnsupported,
                               {"blocks of 100 inputs: attend supports multiples of 32"});
  expect_quantization_rejected(
      compressed("nvfp4-pack-quantized", "{}"), ErrorCode::kUnsupported,
      {"format \"nvfp4-pack-quantized\"", "float-quantized, int-quantized, mxfp4-pack-quantized"});
  expect_quantization_rejected(compressed("pack-quantized", R"({"num_bits": 2, "type": "int"})"),
                               ErrorCode::kUnsupported, {"num_bits 2: attend supports 4, 8"});
  expect_quantization_rejected(compressed("int-quantized", R"({"num_bits": 4, "type": "int"})"),
                               ErrorCode::kUnsupported, {"num_bits 4: attend supports 8"});
  expect_quantization_rejected(compressed("float-quantized", R"({"num_bits": 8, "type": "int"})"),
                               ErrorCode::kUnsupported, {"type \"int\": attend supports float"});
}

TEST(Quantization, RejectsTransforms) {
  const auto with = [](const std::string& rest) {
    return R"({"quant_method": "compressed-tensors", "format": "float-quantized",
               "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}, )" +
           rest + "}";
  };
  expect_quantization_rejected(
      with(R"("transform_config": {"config_groups": {"R1": {"type": "hadamard", "apply": []}}})"),
      ErrorCode::kUnsupported, {"transform_config.config_groups", "attend does not support transforms"});
  expect_quantization_rejected(with(R"("sparsity_config": {"format": "sparse-24-bitmask"})"),
                               ErrorCode::kUnsupported,
                               {"sparsity_config.format \"sparse-24-bitmask\": attend supports dense"});
  EXPECT_NO_THROW(parse_quantization(with(R"("transform_config": {}, "sparsity_config": {})")));
  EXPECT_NO_THROW(parse_quantization(
      with(R"("transform_config": {"config_groups": {}}, "sparsity_config": {"format": "dense"})")));
}

TEST(Quantization, RejectsInvalidConfigs) {
  expect_quantization_rejected(R"({"quant_method": "gptq", "bits": 4, "group_size": 0})",
                               ErrorCode::kCorruptFile, {"group_size 0"});
  expect_quantization_rejected(R"({"quant_method": "gptq"})", ErrorCode::kCorruptFile, {"bits"});
  expect_quantization_rejected(R"({"quant_method": "gptq", "bits": 4, "dynamic": ["down_proj"]})",
                               ErrorCode::kCorruptFile, {"dynamic [\"down_proj\"]: expected a JSON object"});
  expect_quantization_rejected(R"({"quant_method": "fp8", "weight_block_size": [128]})",
                               ErrorCode::kCorruptFile, {"weight_block_size", "an array of two sizes"});
  expect_quantization_rejected(R"({"quant_method": "fp8", "weight_block_size": [0, 128]})",
                               ErrorCode::kCorruptFile, {"weight_block_size[0]"});
  expect_quantization_rejected(
      R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {}})",
      ErrorCode::kCorruptFile, {"config_groups", "at least one group"});
  expect_quantization_rejected("7", ErrorCode::kCorruptFile, {"quantization_config"});
}

}  // namespace
}  // namespace attend
