// Formats and sizes of a model's weights, determined before weights are read.
#include "attend/model/weight_inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>

#include "tests/model/config_fields.h"

namespace attend {
namespace {

using test::llama;
using test::TempDir;
using testing::ElementsAre;
using testing::IsEmpty;

const std::filesystem::path kGoldens = std::filesystem::path(ATTEND_SOURCE_DIR) / "tests/goldens";

std::string make_config(const std::string& golden) {
  std::ifstream file(kGoldens / golden / "config.json");
  return {std::istreambuf_iterator<char>(file), {}};
}

void copy_weights(const std::string& golden, const TempDir& dir) {
  std::filesystem::copy(kGoldens / golden / "model.safetensors", dir.path());
}

std::vector<std::string> names(const std::vector<StoredFormat>& formats) {
  std::vector<std::string> names;
  for (const StoredFormat& format : formats) names.push_back(format.name);
  return names;
}

std::vector<StoredFormat> formats_of(const std::filesystem::path& directory) {
  const auto checkpoint = open_checkpoint(directory);
  return WeightInventory(read_config(*checkpoint), checkpoint.get()).formats();
}

std::vector<std::string> names_of(const std::string& golden) { return names(formats_of(kGoldens / golden)); }

TEST(WeightInventory, DescribesScaleGroups) {
  EXPECT_THAT(names_of("llama-fp8-tensor"), ElementsAre("fp8 per tensor"));
  EXPECT_THAT(names_of("llama-fp8-channel"), ElementsAre("fp8 per output", "bfloat16"));
  EXPECT_THAT(names_of("llama-int8-channel"), ElementsAre("int8 per output"));
  EXPECT_THAT(names_of("qwen3-fp8-blocks"), ElementsAre("fp8 in blocks of 128 x 128"));
  EXPECT_THAT(names_of("llama-awq"), ElementsAre("int4 in groups of 32"));
}

// Detected with and without desc_act in config.json.
TEST(WeightInventory, ReportsActOrder) {
  EXPECT_THAT(names_of("qwen2-gptq-act-order"), ElementsAre("int4 in groups of 32 by act-order"));
  EXPECT_THAT(names_of("llama-gptq-v2"), ElementsAre("int4 in groups of 64"));
  const TempDir dir;
  std::string config = make_config("qwen2-gptq-act-order");
  const std::string field = "\"desc_act\": true";
  config.replace(config.find(field), field.size(), "\"desc_act\": false");
  dir.write("config.json", config);
  copy_weights("qwen2-gptq-act-order", dir);
  EXPECT_THAT(names(formats_of(dir.path())), ElementsAre("int4 in groups of 32 by act-order"));
}

// The experts are half of the elements and have one 8-bit scale per 32 elements.
TEST(WeightInventory, CountsMixedFormats) {
  const std::vector<StoredFormat> formats = formats_of(kGoldens / "gpt-oss-mxfp4");
  ASSERT_THAT(names(formats), testing::UnorderedElementsAre("mxfp4 in groups of 32", "bfloat16"));
  for (const StoredFormat& format : formats) {
    const double bytes = format.storage == WeightStorage::kPlain ? 2.0 : 0.5 + 1.0 / 32;
    EXPECT_DOUBLE_EQ(format.num_bytes, bytes * static_cast<double>(format.num_elements)) << format.name;
  }
  EXPECT_THAT(names_of("qwen3-moe-fp8-int4"),
              testing::UnorderedElementsAre("fp8 per output", "int4 in groups of 32"));
}

TEST(WeightInventory, SortsFormatsByElements) {
  const std::vector<StoredFormat> formats = formats_of(kGoldens / "qwen2-gptq-mixed");
  ASSERT_EQ(formats.size(), 4u);
  EXPECT_TRUE(std::ranges::is_sorted(formats, std::ranges::greater(), &StoredFormat::num_elements));
}

// Config of an unquantized golden with the quantization_config of AWQ.
std::string config_with_quantization(const std::string& golden) {
  std::string config = make_config(golden);
  config.insert(config.find('{') + 1,
                R"("quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32},)");
  return config;
}

TEST(WeightInventory, ReportsStoredFormatsNotTheConfig) {
  const TempDir dir;
  dir.write("config.json", config_with_quantization("llama-gqa4-hd32"));
  copy_weights("llama-gqa4-hd32", dir);
  const std::vector<StoredFormat> formats = formats_of(dir.path());
  ASSERT_THAT(names(formats), ElementsAre("float32"));
  EXPECT_EQ(formats[0].storage, WeightStorage::kPlain);
  EXPECT_DOUBLE_EQ(formats[0].num_bytes, 4.0 * static_cast<double>(formats[0].num_elements));
}

TEST(WeightInventory, HasNoFormatsForPlainModels) {
  EXPECT_THAT(names_of("llama-gqa4-hd32"), IsEmpty());
  const TempDir dir;
  dir.write("config.json", config_with_quantization("llama-gqa4-hd32"));
  const auto checkpoint = open_checkpoint(dir.path());
  const WeightInventory weights(read_config(*checkpoint), checkpoint.get());
  EXPECT_THAT(weights.formats(), IsEmpty());
  EXPECT_EQ(weights.copied_bytes(), 0u);
  test::expect_error(ErrorCode::kNotFound, {"model.safetensors"},
                     [&] { weights.device_bytes(DType::kBF16); });
}

TEST(WeightInventory, ReportsTheFormatsOfDummyWeights) {
  const ModelSpec spec =
      llama({{"quantization_config", R"({"quant_method": "awq", "bits": 4, "group_size": 32})"}});
  const std::vector<StoredFormat> formats = WeightInventory(spec).formats();
  ASSERT_THAT(names(formats), ElementsAre("int4 in groups of 32"));
  EXPECT_DOUBLE_EQ(formats[0].num_bytes, (0.5 + 2.0 / 32) * static_cast<double>(formats[0].num_elements));
}

// Dummy weights without a GPU: int4 in groups of 128 takes half a byte per weight and at most 5 bytes per
// group.
TEST(WeightInventory, ReportsDeviceBytes) {
  const ModelSpec plain = llama({});
  const ModelSpec spec =
      llama({{"quantization_config", R"({"quant_method": "awq", "bits": 4, "group_size": 32})"}});
  const size_t plain_bytes = WeightInventory(plain).device_bytes(DType::kBF16);
  const size_t bytes = WeightInventory(spec).device_bytes(DType::kBF16);
  const auto table_bytes = 2.0 * plain.vocab_size * plain.hidden_size;
  const double linear_bytes = static_cast<double>(plain_bytes) - table_bytes;
  EXPECT_LT(static_cast<double>(bytes), table_bytes + 0.45 * linear_bytes + 1e5);
  EXPECT_GT(static_cast<double>(bytes), table_bytes);
}

}  // namespace
}  // namespace attend
