#include "attend/checkpoint/hf/hf_checkpoint.h"

#include <gtest/gtest.h>

#include "tests/support/test_files.h"

namespace attend {
namespace {

using test::bytes_of;
using test::expect_error;
using test::safetensors_bytes;
using test::TempDir;
using test::TestTensor;

std::string file_with(const std::string& name, float value) {
  const std::vector<TestTensor> tensors{{name, "F32", {1}, bytes_of({value})}};
  return safetensors_bytes(tensors);
}

constexpr const char* kIndex = "model.safetensors.index.json";

// Expects an error for this index next to one.safetensors (tensor "a") and two.safetensors (tensor "b").
void expect_bad_index(std::string_view index, ErrorCode code, std::initializer_list<std::string_view> parts) {
  SCOPED_TRACE(index);
  const TempDir dir;
  dir.write("one.safetensors", file_with("a", 1.0f));
  dir.write("two.safetensors", file_with("b", 2.0f));
  dir.write(kIndex, index);
  expect_error(code, parts, [&] { HfTensors{dir.path()}; });
}

TEST(HfCheckpoint, ReadsASingleFile) {
  const TempDir dir;
  dir.write("model.safetensors", file_with("a", 1.0f));
  const HfTensors weights(dir.path());
  EXPECT_TRUE(weights.contains("a"));
  EXPECT_FALSE(weights.contains("b"));
  EXPECT_EQ(*weights.tensor("a").as<float>(), 1.0f);
}

TEST(HfCheckpoint, ReadsTheShardsOfAnIndex) {
  const TempDir dir;
  dir.write("one.safetensors", file_with("a", 1.0f));
  dir.write("two.safetensors", file_with("b", 2.0f));
  dir.write(kIndex,
            R"({"metadata":{"total_size":8},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const HfTensors weights(dir.path());
  EXPECT_EQ(*weights.tensor("a").as<float>(), 1.0f);
  EXPECT_EQ(*weights.tensor("b").as<float>(), 2.0f);
  EXPECT_THAT(weights.where("b"), testing::HasSubstr("two.safetensors: tensor \"b\""));
}

TEST(HfCheckpoint, SingleFileOverridesIndex) {
  const TempDir dir;
  dir.write("model.safetensors", file_with("a", 1.0f));
  dir.write(kIndex, R"({"weight_map":{"a":"missing.safetensors"}})");
  EXPECT_EQ(*HfTensors(dir.path()).tensor("a").as<float>(), 1.0f);
}

TEST(HfCheckpoint, RejectsADirectoryWithoutWeights) {
  const TempDir dir;
  expect_error(ErrorCode::kNotFound, {dir.path().string(), "model.safetensors", kIndex},
               [&] { HfTensors{dir.path()}; });
  expect_error(ErrorCode::kNotFound, {"nowhere", "directory"}, [&] { HfTensors{dir.path() / "nowhere"}; });
}

TEST(HfCheckpoint, RejectsATensorThatNoFileContains) {
  const TempDir dir;
  dir.write("model.safetensors", file_with("a", 1.0f));
  const HfTensors weights(dir.path());
  expect_error(ErrorCode::kNotFound, {dir.path().string(), "\"b\""}, [&] { weights.tensor("b"); });
}

TEST(HfCheckpoint, RejectsAMissingShard) {
  expect_bad_index(R"({"weight_map":{"a":"one.safetensors","c":"three.safetensors"}})", ErrorCode::kNotFound,
                   {"three.safetensors", "missing shard", "\"c\""});
}

TEST(HfCheckpoint, RejectsAShardThatLacksATensorOfTheIndex) {
  expect_bad_index(R"({"weight_map":{"b":"one.safetensors"}})", ErrorCode::kCorruptFile,
                   {"one.safetensors", "\"b\"", kIndex});
}

TEST(HfCheckpoint, RejectsAShardPathOutsideTheDirectory) {
  for (const char* name : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", "..", ".", "", "one/"})
    expect_bad_index(R"({"weight_map":{"a":")" + std::string(name) + R"("}})", ErrorCode::kCorruptFile,
                     {kIndex, "weight_map.a", name, "same directory"});
}

TEST(HfCheckpoint, RejectsAMalformedIndex) {
  expect_bad_index("{", ErrorCode::kCorruptFile, {kIndex, "JSON"});
  expect_bad_index("[]", ErrorCode::kCorruptFile, {kIndex, "object"});
  expect_bad_index("{}", ErrorCode::kCorruptFile, {kIndex, "weight_map", "missing"});
  expect_bad_index(R"({"weight_map":[]})", ErrorCode::kCorruptFile, {kIndex, "weight_map []", "object"});
  expect_bad_index(R"({"weight_map":{"a":1}})", ErrorCode::kCorruptFile, {kIndex, "weight_map.a 1"});
  expect_bad_index(R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})", ErrorCode::kCorruptFile,
                   {kIndex, "\"a\"", "twice"});
}

TEST(HfCheckpoint, RejectsACorruptShard) {
  const TempDir dir;
  dir.write("one.safetensors", file_with("a", 1.0f).substr(0, 40));
  dir.write(kIndex, R"({"weight_map":{"a":"one.safetensors"}})");
  expect_error(ErrorCode::kCorruptFile, {"one.safetensors"}, [&] { HfTensors{dir.path()}; });
}

}  // namespace
}  // namespace attend
