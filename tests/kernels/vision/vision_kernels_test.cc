// Operations of vision towers on the CPU and, in three dtypes, on a GPU: the values of their definitions.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "attend/kernels/norm_rope/rope.h"
#include "attend/kernels/vision/vision.h"
#include "attend/tensor/cuda.h"
#include "tests/support/error_message.h"
#include "tests/support/gpu_device.h"

namespace attend::kernels {
namespace {

using testing_support::error_message;
using testing_support::kGpu;

struct Placement {
  Device device = {};
  DType dtype = DType::kF32;
};

class VisionKernels : public testing::TestWithParam<Placement> {
 protected:
  void SetUp() override {
    if (!on_gpu()) return;
    if (cuda::device_count() == 0) GTEST_SKIP() << "this machine has no GPU that this build can use";
    gpu_stream_.emplace(kGpu);
    stream_ = gpu_stream_->get();
  }
  bool on_gpu() const { return GetParam().device.type == DeviceType::kCuda; }
  DType dtype() const { return GetParam().dtype; }

  Tensor here(const Tensor& tensor) const { return on_gpu() ? cuda::copy_to(tensor, kGpu) : tensor; }
  template <class T>
  Tensor here(const std::vector<T>& values) const {
    return here(Tensor::from<T>(values, {static_cast<int64_t>(values.size())}));
  }
  // Values that 16-bit dtypes represent: multiples of 1/8 below 16.
  Tensor matrix(int64_t rows, int64_t columns, int seed) const {
    const Tensor host = Tensor::empty({rows, columns}, dtype());
    visit_float_dtype(dtype(), [&]<class T>(TypeTag<T>) {
      for (int64_t i = 0; i < rows * columns; ++i) host.as<T>()[i] = T(value(i, seed));
    });
    return here(host);
  }
  static float value(int64_t i, int seed) {
    return static_cast<float>((i * 37 + seed * 11) % 255 - 127) / 8.0f;
  }
  std::vector<float> read(const Tensor& tensor) {
    Tensor host = tensor;
    if (on_gpu()) {
      host = Tensor::empty({tensor.shape(0), tensor.shape(1)}, tensor.dtype());
      cuda::copy(tensor, host, stream_);
      cuda::synchronize(stream_);
    }
    std::vector<float> values;
    visit_float_dtype(host.dtype(), [&]<class T>(TypeTag<T>) {
      for (int64_t i = 0; i < host.view().num_elements(); ++i)
        values.push_back(static_cast<float>(host.as<T>()[i]));
    });
    return values;
  }
  // Values are below 2^10.
  float tolerance() const { return dtype() == DType::kF32 ? 1e-4f : dtype() == DType::kF16 ? 0.5f : 4.0f; }
  void expect_near(const Tensor& result, const std::vector<float>& expected) {
    const std::vector<float> values = read(result);
    ASSERT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], expected[i], std::max(1e-5f, std::abs(expected[i]) / 1024.0f * tolerance()))
          << "element " << i;
  }

  std::optional<cuda::OwnedStream> gpu_stream_;
  Stream stream_;
};

TEST_P(VisionKernels, CutPatchesOutOfPixels) {
  constexpr int kHeight = 6, kWidth = 8, kPatch = 2;
  std::vector<uint8_t> bytes(kHeight * kWidth * 3);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 29);
  const Tensor pixels = here(Tensor::from<uint8_t>(bytes, {kHeight, kWidth, 3}));
  const std::vector<int32_t> rows{2, 0, 1}, columns{3, 0, 2};
  const Tensor rows_here = here(rows), columns_here = here(columns);
  for (const bool channels_last : {false, true})
    for (const int num_frames : {1, 2}) {
      if (channels_last && num_frames > 1) continue;
      const int64_t size = 3 * num_frames * kPatch * kPatch;
      const Tensor out = Tensor::empty({3, size}, dtype(), GetParam().device);
      ImagePatchesArgs args{.pixels = pixels,
                            .rows = rows_here.span<const int32_t>(),
                            .columns = columns_here.span<const int32_t>(),
                            .patch_size = kPatch,
                            .num_frames = num_frames,
                            .channels_last = channels_last,
                            .mean = {100.0f, 110.0f, 120.0f},
                            .deviation = {50.0f, 60.0f, 70.0f},
                            .out = out};
      image_patches(args, stream_);
      std::vector<float> expected;
      for (size_t patch = 0; patch < rows.size(); ++patch) {
        const auto pixel = [&](int y, int x, int c) {
          const int row = rows[patch] * kPatch + y, column = columns[patch] * kPatch + x;
          return static_cast<float>(bytes[static_cast<size_t>((row * kWidth + column) * 3 + c)]);
        };
        if (channels_last) {
          for (int y = 0; y < kPatch; ++y)
            for (int x = 0; x < kPatch; ++x)
              for (int c = 0; c < 3; ++c) expected.push_back(2.0f * (pixel(y, x, c) / 255.0f - 0.5f));
          continue;
        }
        for (int c = 0; c < 3; ++c)
          for (int frame = 0; frame < num_frames; ++frame)
            for (int y = 0; y < kPatch; ++y)
              for (int x = 0; x < kPatch; ++x)
                expected.push_back((pixel(y, x, c) - static_cast<float>(100 + 10 * c)) /
                                   static_cast<float>(50 + 10 * c));
      }
      expect_near(out, expected);
    }
}

TEST_P(VisionKernels, AddWeightedRowsOfATable) {
  constexpr int64_t kFeatures = 300;
  const Tensor table = matrix(5, kFeatures, 1), out = matrix(3, kFeatures, 2);
  const std::vector<TableTap> taps{{4, 0.5f}, {0, 0.25f}, {2, 1.0f}, {2, 1.0f}, {1, 0.0f}, {3, -1.0f}};
  const Tensor taps_here = here(Tensor::from<uint8_t>(
      std::span(reinterpret_cast<const uint8_t*>(taps.data()), taps.size() * sizeof(TableTap)),
      {static_cast<int64_t>(taps.size() * sizeof(TableTap))}));
  add_table_rows({.taps = {static_cast<const TableTap*>(taps_here.view().data), taps.size()},
                  .taps_per_row = 2,
                  .table = table,
                  .out = out},
                 stream_);
  std::vector<float> expected;
  for (int64_t row = 0; row < 3; ++row)
    for (int64_t i = 0; i < kFeatures; ++i) {
      float sum = value(row * kFeatures + i, 2);
      for (int64_t k = 0; k < 2; ++k) {
        const TableTap& tap = taps[static_cast<size_t>(2 * row + k)];
        sum += tap.weight * value(tap.row * kFeatures + i, 1);
      }
      expected.push_back(sum);
    }
  expect_near(out, expected);
}

TEST_P(VisionKernels, JoinChannelsOfPatches) {
  constexpr int64_t kTokens = 3, kPatches = 4, kChannels = 70;
  const Tensor x = matrix(kTokens, kPatches * kChannels, 1);
  const Tensor out = Tensor::empty({kTokens, kPatches * kChannels}, dtype(), GetParam().device);
  join_channels(x, kPatches, out, stream_);
  std::vector<float> expected;
  for (int64_t token = 0; token < kTokens; ++token)
    for (int64_t channel = 0; channel < kChannels; ++channel)
      for (int64_t patch = 0; patch < kPatches; ++patch)
        expected.push_back(value((token * kPatches + patch) * kChannels + channel, 1));
  expect_near(out, expected);
}

TEST_P(VisionKernels, AveragePatchesOfATokenAndStandardizeThem) {
  constexpr int64_t kTokens = 3, kPatches = 9, kFeatures = 270;
  const Tensor x = matrix(kTokens, kPatches * kFeatures, 1);
  std::vector<float> bias, scale;
  for (int64_t i = 0; i < kFeatures; ++i) {
    bias.push_back(value(i, 3));
    scale.push_back(value(i, 4));
  }
  const Tensor bias_here = here(bias), scale_here = here(scale);
  for (const bool standardizes : {false, true}) {
    const Tensor out = Tensor::empty({kTokens, kFeatures}, dtype(), GetParam().device);
    average_patches({.x = x,
                     .factor = 3.0f,
                     .bias = standardizes ? bias_here.view() : TensorView(),
                     .scale = standardizes ? scale_here.view() : TensorView(),
                     .out = out},
                    stream_);
    std::vector<float> expected;
    for (int64_t token = 0; token < kTokens; ++token)
      for (int64_t i = 0; i < kFeatures; ++i) {
        float sum = 0.0f;
        for (int64_t patch = 0; patch < kPatches; ++patch)
          sum += value((token * kPatches + patch) * kFeatures + i, 1);
        sum = 3.0f * sum / static_cast<float>(kPatches);
        if (standardizes) sum = (sum - bias[static_cast<size_t>(i)]) * scale[static_cast<size_t>(i)];
        expected.push_back(sum);
      }
    expect_near(out, expected);
  }
}

TEST_P(VisionKernels, ClampBetweenNumbersInDeviceMemory) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Tensor x = matrix(5, 300, 1);
  for (const auto& [low, high] : {std::pair(-1.5f, 2.25f), {-kInfinity, kInfinity}, {-kInfinity, 0.0f}}) {
    const Tensor low_here = here(std::vector{low}), high_here = here(std::vector{high});
    const Tensor out = Tensor::empty({5, 300}, dtype(), GetParam().device);
    clamp_between(x, low_here, high_here, out, stream_);
    std::vector<float> expected;
    for (int64_t i = 0; i < 5 * 300; ++i) expected.push_back(std::min(std::max(value(i, 1), low), high));
    expect_near(out, expected);
  }
}

TEST_P(VisionKernels, SelectAnglesByAxis) {
  if (dtype() != DType::kF32) GTEST_SKIP() << "angles are float32";
  constexpr int64_t kPairs = 70, kPositions = 9, kTokens = 4;
  const Tensor cos = matrix(kPositions, kPairs, 1), sin = matrix(kPositions, kPairs, 2);
  const std::vector<int32_t> positions{0, 1, 2, 3, 8, 7, 6, 5, 4, 4, 0, 8};
  std::vector<uint8_t> axes;
  for (int64_t pair = 0; pair < kPairs; ++pair) axes.push_back(static_cast<uint8_t>(pair % 3));
  const Tensor positions_here = here(positions);
  const Tensor out_cos = Tensor::empty({kTokens, kPairs}, DType::kF32, GetParam().device),
               out_sin = Tensor::empty({kTokens, kPairs}, DType::kF32, GetParam().device);
  axis_angles({.positions = positions_here.span<const int32_t>(),
               .pair_axes = axes,
               .table_cos = cos,
               .table_sin = sin,
               .cos = out_cos,
               .sin = out_sin},
              stream_);
  std::vector<float> expected_cos, expected_sin;
  for (int64_t token = 0; token < kTokens; ++token)
    for (int64_t pair = 0; pair < kPairs; ++pair) {
      const int64_t row = positions[static_cast<size_t>(pair % 3 * kTokens + token)];
      expected_cos.push_back(value(row * kPairs + pair, 1));
      expected_sin.push_back(value(row * kPairs + pair, 2));
    }
  EXPECT_EQ(read(out_cos), expected_cos);
  EXPECT_EQ(read(out_sin), expected_sin);
}

INSTANTIATE_TEST_SUITE_P(, VisionKernels,
                         testing::Values(Placement{}, Placement{kGpu, DType::kF32},
                                         Placement{kGpu, DType::kF16}, Placement{kGpu, DType::kBF16}),
                         [](const auto& param) {
                           const bool on_cpu = param.param.device.type == DeviceType::kCpu;
                           return on_cpu ? std::string("cpu")
                                         : "gpu_" + std::string(to_string(param.param.dtype));
                         });

TEST(VisionKernelErrors, NameTheArgument) {
  Stream stream;
  const Tensor table = Tensor::zeros({4, 8}, DType::kF32), out = Tensor::zeros({1, 8}, DType::kF32);
  const std::vector<TableTap> taps{{4, 1.0f}};
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument,
                          [&] { add_table_rows({.taps = taps, .table = table, .out = out}, stream); }),
            "taps: row 4: table has 4 rows");
  const Tensor pixels = Tensor::zeros({4, 4, 3}, DType::kU8), patch = Tensor::zeros({1, 12}, DType::kF32);
  const std::vector<int32_t> rows{0}, columns{2};
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument,
                          [&] {
                            image_patches({.pixels = pixels,
                                           .rows = rows,
                                           .columns = columns,
                                           .patch_size = 2,
                                           .mean = {},
                                           .deviation = {1, 1, 1},
                                           .out = patch},
                                          stream);
                          }),
            "columns: 2: expected 0 to 1 for pixels uint8[4, 4, 3] on cpu");
  const std::vector<int32_t> positions{7};
  const std::vector<uint8_t> axes{0, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument,
                          [&] {
                            axis_angles({.positions = positions,
                                         .pair_axes = axes,
                                         .table_cos = table,
                                         .table_sin = table,
                                         .cos = out,
                                         .sin = out},
                                        stream);
                          }),
            "position 7: expected 0 to 3");
}

}  // namespace
}  // namespace attend::kernels
