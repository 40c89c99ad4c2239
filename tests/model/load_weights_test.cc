// Loading of stored and dummy weights into slots.
#include "attend/model/weights/load_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/support/test_files.h"

namespace attend {
namespace {

using test::expect_error;
using test::make_tensor;
using test::safetensors_bytes;
using test::TempDir;
using test::TestTensor;

// A slot of these parts that stores its tensors in `into`.
WeightSlot slot_of(std::vector<WeightPart> parts, int64_t columns, std::vector<TensorView>& into,
                   WeightUse use = WeightUse::kLinear) {
  return {.parts = std::move(parts),
          .columns = columns,
          .use = use,
          .place = [&into](std::span<const Weight> weights) {
            into.clear();
            for (const Weight& weight : weights) into.push_back(weight.data);
          }};
}

TEST(MapWeights, KeepsDtypeAndMappingOfEachPart) {
  const TempDir dir;
  dir.write("model.safetensors",
            safetensors_bytes(std::vector<TestTensor>{make_tensor("a", {2, 3}, "BF16"), make_tensor("b", {4}),
                                                      make_tensor("c", {5, 3}, "BF16")}));
  std::vector<TensorView> matrix, vector;
  const std::vector<WeightSlot> slots{slot_of({{"a", 2}, {"c", 5}}, 3, matrix),
                                      slot_of({{"b", 4}}, 0, vector)};
  const LoadedWeights weights = map_weights(slots, {}, open_checkpoint(dir.path())->open_tensors(), {});
  ASSERT_EQ(matrix.size(), 2u);
  EXPECT_EQ(matrix[0].to_string(), "bfloat16[2, 3] on cpu");
  EXPECT_EQ(matrix[1].to_string(), "bfloat16[5, 3] on cpu");
  EXPECT_EQ(vector.at(0).dtype, DType::kF16);
  EXPECT_EQ(matrix[0].data, weights.files->tensor("a").view().data) << "a view, not a copy";
  EXPECT_EQ(weights.num_bytes, 2u * 6 + 2 * 15 + 2 * 4);
}

TEST(MapWeights, LoadsAZeroCenteredNormAsOnePlusWeightInFloat32) {
  const TempDir dir;
  TestTensor norm = make_tensor("n", {2}, "BF16");
  // 0.00296 in bfloat16, which would be lost in 1 + 0.00296 in bfloat16, and -0.5.
  const uint16_t bits[] = {0x3b42, 0xbf00};
  std::memcpy(norm.data.data(), bits, sizeof bits);
  dir.write("model.safetensors", safetensors_bytes(std::vector<TestTensor>{norm}));
  std::vector<TensorView> placed;
  std::vector<WeightSlot> slots{slot_of({{"n", 2}}, 0, placed, WeightUse::kNorm)};
  slots[0].zero_centered = true;
  const LoadedWeights weights = map_weights(slots, {}, open_checkpoint(dir.path())->open_tensors(), {});
  ASSERT_EQ(placed.at(0).to_string(), "float32[2] on cpu");
  EXPECT_EQ(placed[0].as<float>()[0], 1.0f + static_cast<float>(BF16::from_bits(0x3b42)));
  EXPECT_EQ(placed[0].as<float>()[1], 0.5f);
  EXPECT_EQ(weights.num_bytes, 8u);
  EXPECT_EQ(num_bytes(slots, DType::kBF16), num_bytes(slots, DType::kF32)) << "float32 in either case";
}

TEST(MapWeights, ScalesANormInFloat32) {
  const TempDir dir;
  TestTensor norm = make_tensor("n", {2}, "BF16");
  const uint16_t bits[] = {0x3fc0, 0xbf00};  // 1.5 and -0.5
  std::memcpy(norm.data.data(), bits, sizeof bits);
  dir.write("model.safetensors", safetensors_bytes(std::vector<TestTensor>{norm}));
  std::vector<TensorView> placed;
  std::vector<WeightSlot> slots{slot_of({{"n", 2}}, 0, placed, WeightUse::kNorm)};
  slots[0].scale = 0.3f;
  const LoadedWeights weights = map_weights(slots, {}, open_checkpoint(dir.path())->open_tensors(), {});
  ASSERT_EQ(placed.at(0).to_string(), "float32[2] on cpu");
  EXPECT_EQ(placed[0].as<float>()[0], 0.3f * 1.5f);
  EXPECT_EQ(placed[0].as<float>()[1], 0.3f * -0.5f);
}

TEST(MapWeights, JoinsThePartsOfAConvolution) {
  const TempDir dir;
  TestTensor q = make_tensor("l.q.weight", {2, 1, 3}, "F32"),
             k = make_tensor("l.k.weight", {1, 1, 3}, "BF16");
  const float values[] = {1, 2, 3, 4, 5, 6};
  std::memcpy(q.data.data(), values, sizeof values);
  const uint16_t bits[] = {0x40e0, 0x4100, 0x4110};  // 7, 8, 9
  std::memcpy(k.data.data(), bits, sizeof bits);
  dir.write("model.safetensors", safetensors_bytes(std::vector<TestTensor>{q, k}));
  TensorView convolution;
  std::vector<WeightSlot> slots;
  SlotWriter("l.", slots).convolution({{"q", 2}, {"k", 1}}, 3, convolution);
  const LoadedWeights weights = map_weights(slots, {}, open_checkpoint(dir.path())->open_tensors(), {});
  ASSERT_EQ(convolution.to_string(), "float32[3, 3] on cpu");
  for (int i = 0; i < 9; ++i) EXPECT_EQ(convolution.as<float>()[i], static_cast<float>(i + 1));
  const LoadedWeights dummy = make_dummy_weights(slots, DType::kBF16, Device{}, {});
  EXPECT_EQ(convolution.to_string(), "float32[3, 3] on cpu");
}

TEST(MapWeights, LoadsAVectorWithTheAxesOfAnActivation) {
  const TempDir dir;
  dir.write("model.safetensors", safetensors_bytes(std::vector<TestTensor>{make_tensor("a", {1, 1, 4, 1}),
                                                                           make_tensor("b", {4})}));
  const auto files = open_checkpoint(dir.path())->open_tensors();
  TensorView vector;
  std::vector<WeightSlot> slots, other;
  SlotWriter("", slots).vector_in_f32("a", 4, vector, ShardAxis::kNone, StoredLayout::kBroadcast);
  const LoadedWeights weights = map_weights(slots, {}, files, {});
  EXPECT_EQ(vector.to_string(), "float32[4] on cpu");
  SlotWriter("", other).vector_in_f32("b", 4, vector, ShardAxis::kNone, StoredLayout::kBroadcast);
  expect_error(ErrorCode::kCorruptFile, {"b", "shape [4]", "expected [1, 1, 4, 1]"},
               [&] { map_weights(other, {}, files, {}); });
}

// Mean and standard deviation of a tensor.
std::pair<double, double> moments(const TensorView& tensor) {
  double sum = 0.0, squares = 0.0;
  visit_float_dtype(tensor.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (const T value : tensor.span<T>()) {
      const auto x = static_cast<double>(static_cast<float>(value));
      sum += x;
      squares += x * x;
    }
  });
  const auto count = static_cast<double>(tensor.num_elements());
  return {sum / count, std::sqrt(squares / count - sum / count * sum / count)};
}

TEST(DummyWeights, AreSmallRandomAndNormsAreAboutOne) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    std::vector<TensorView> matrix, norm;
    const std::vector<WeightSlot> slots{slot_of({{"m", 300}}, 500, matrix),
                                        slot_of({{"n", 40'000}}, 0, norm, WeightUse::kNorm)};
    const LoadedWeights weights = make_dummy_weights(slots, dtype, Device{}, {});
    EXPECT_EQ(matrix.at(0).to_string(), std::string(to_string(dtype)) + "[300, 500] on cpu");
    const auto [mean, deviation] = moments(matrix[0]);
    EXPECT_NEAR(mean, 0.0, 3e-4);
    EXPECT_NEAR(deviation, 0.02, 3e-4);
    EXPECT_NEAR(moments(norm.at(0)).first, 1.0, 1e-3);
    EXPECT_NEAR(moments(norm[0]).second, 0.02, 1e-3);
  }
}

TEST(DummyWeights, AreReproducibleAndDifferPerTensor) {
  std::vector<TensorView> a, b, again;
  const LoadedWeights two = make_dummy_weights(
      std::vector<WeightSlot>{slot_of({{"a", 100'000}}, 0, a), slot_of({{"b", 100'000}}, 0, b)}, DType::kF32,
      Device{}, {});
  const LoadedWeights one = make_dummy_weights(std::vector<WeightSlot>{slot_of({{"a", 100'000}}, 0, again)},
                                               DType::kF32, Device{}, {});
  const View<float> first = a.at(0).span<float>(), second = b.at(0).span<float>();
  EXPECT_TRUE(std::ranges::equal(first, again.at(0).span<float>()));
  double dot = 0.0;
  for (size_t i = 0; i < 100'000; ++i) dot += double{first[i]} * second[i];
  EXPECT_NEAR(dot / (100'000 * 0.02 * 0.02), 0.0, 0.02) << "the tensors are correlated";
}

TEST(DummyWeights, PartsEqualTheWholeTensor) {
  std::vector<TensorView> whole, parts;
  const LoadedWeights one =
      make_dummy_weights(std::vector<WeightSlot>{slot_of({{"w", 7}}, 5, whole)}, DType::kF32, Device{}, {});
  const LoadedWeights two = make_dummy_weights(
      std::vector<WeightSlot>{slot_of({{"u", 3}, {"v", 4}}, 5, parts)}, DType::kF32, Device{}, {});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_TRUE(std::ranges::equal(parts[0].span<float>(), whole.at(0).slice(0, 0, 3).span<float>()));
  EXPECT_TRUE(std::ranges::equal(parts[1].span<float>(), whole[0].slice(0, 3, 7).span<float>()));
}

TEST(DummyWeights, RejectAModelLargerThanMemoryEarly) {
  std::vector<TensorView> tensor;
  const std::vector<WeightSlot> slots{slot_of({{"m", int64_t{1} << 24}}, int64_t{1} << 24, tensor)};
  expect_error(ErrorCode::kOutOfMemory, {"dummy weights", "needed", "free"},
               [&] { make_dummy_weights(slots, DType::kBF16, Device{}, {}); });
}

}  // namespace
}  // namespace attend
