// Image processors and vision towers have the results of transformers (scripts/make_vision_goldens.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "attend/checkpoint/hf/safetensors.h"
#include "attend/model/architectures/architecture.h"
#include "attend/model/load_vision_tower.h"
#include "attend/model/multimodal/prompt_positions.h"
#include "attend/model/multimodal/vision_encoding.h"
#include "attend/model/weights/load_weights.h"
#include "attend/tensor/cuda.h"
#include "tests/support/error_message.h"
#include "tests/support/gpu_device.h"

namespace attend {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::error_message;
using testing_support::kGpu;

constexpr const char* kCases[] = {"vision-qwen3-vl", "vision-qwen2-5-vl", "vision-qwen3-5",
                                  "vision-gemma3",   "vision-mistral3",   "vision-gemma4"};
constexpr int kNumImages = 4;

std::filesystem::path folder_of(const std::string& name) {
  return std::filesystem::path(ATTEND_SOURCE_DIR) / "tests/goldens" / name;
}

Image golden_image(const SafetensorsFile& goldens, int index) {
  const Tensor file = goldens.tensor("image." + std::to_string(index) + ".file");
  return decode_image(std::as_bytes(file.span<const uint8_t>()));
}

// Elements in host memory, in float32.
Tensor on_host(const TensorView& view, Stream& stream) {
  if (view.device.type == DeviceType::kCpu) return Tensor(view, nullptr);
  const Tensor copy = Tensor::empty({view.shape[0], view.shape[1]}, view.dtype);
  cuda::copy(view, copy, stream);
  cuda::synchronize(stream);
  // converted() returns the elements without their shape.
  const Tensor in_f32 = converted(copy, DType::kF32);
  return {in_f32.view().reshape({in_f32.view().num_elements()}).reshape({view.shape[0], view.shape[1]}),
          in_f32.storage()};
}

// Largest difference, relative to the largest expected value; NaN if there is one.
float relative_error(const TensorView& values, const Tensor& expected) {
  float error = 0.0f, largest = 0.0f;
  for (int64_t i = 0; i < expected.shape(0); ++i)
    for (int64_t j = 0; j < expected.shape(1); ++j) {
      const float wanted = expected.view()[i].as<const float>()[j];
      const float difference = std::abs(values[i].as<const float>()[j] - wanted);
      error = difference <= error ? error : difference;
      largest = std::max(largest, std::abs(wanted));
    }
  return error / largest;
}

std::string underscored(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

// Case, and placement of the tower.
using Parameters = std::tuple<const char*, ModelPlacement>;

class Vision : public testing::TestWithParam<Parameters> {
 protected:
  void SetUp() override {
    if (!on_gpu()) return;
    if (cuda::device_count() == 0) GTEST_SKIP() << "this machine has no GPU that this build can use";
    gpu_stream_.emplace(placement_.device);
    stream_ = gpu_stream_->get();
  }

  bool on_gpu() const { return placement_.device.type == DeviceType::kCuda; }
  std::unique_ptr<VisionTower> load(bool dummy = false) const {
    return load_vision_tower(dummy ? nullptr : open_checkpoint(folder_)->open_tensors(), spec_, placement_);
  }
  // Relative error of an image's rows. The goldens are computed in float32. In 16 bits it is twice the error
  // of transformers in the same dtype, plus one rounding of the largest value; float16 rounds eight times as
  // finely as bfloat16.
  float tolerance(int image) const {
    if (!on_gpu()) return 2e-5f;
    if (placement_.dtype == DType::kF32) return 1e-4f;
    std::ifstream file(folder_ / "rounding.json");
    const nlohmann::json rounding = nlohmann::json::parse(file);
    const auto error = [&](const char* dtype) {
      return rounding.at(dtype).at("rows").at(static_cast<size_t>(image)).get<float>();
    };
    if (placement_.dtype == DType::kBF16) return 2.0f * error("bfloat16") + 0x1p-9f;
    return 2.0f * std::max(error("float16"), error("bfloat16") / 8.0f) + 0x1p-12f;
  }
  // Compares the rows of an image, and those of deepstack layers.
  void expect_rows(const Tensor& encoded, int image) {
    const std::string prefix = "image." + std::to_string(image) + ".";
    const Tensor rows = on_host(encoded, stream_), expected = goldens_.tensor(prefix + "rows");
    const int64_t size = spec_.hidden_size;
    ASSERT_EQ(rows.shape(0), expected.shape(0)) << prefix;
    ASSERT_EQ(rows.shape(1), spec_.vision->row_size()) << prefix;
    EXPECT_LT(relative_error(rows.view().slice(1, 0, size), expected), tolerance(image)) << prefix;
    for (size_t j = 0; j < spec_.vision->deepstack_layers.size(); ++j) {
      const auto begin = static_cast<int64_t>(1 + j) * size;
      EXPECT_LT(relative_error(rows.view().slice(1, begin, begin + size),
                               goldens_.tensor(prefix + "deepstack." + std::to_string(j))),
                tolerance(image))
          << prefix << " deepstack " << j;
    }
  }

  const ModelPlacement placement_ = std::get<1>(GetParam());
  const std::filesystem::path folder_ = folder_of(std::get<0>(GetParam()));
  const SafetensorsFile goldens_{folder_ / "golden.safetensors"};
  const ModelSpec spec_ = read_config(folder_);
  std::optional<cuda::OwnedStream> gpu_stream_;
  Stream stream_;
};

TEST_P(Vision, PreparesPatchesWithTheBitsOfTheProcessor) {
  // The order of tokens in windows is the tower's, not the processor's.
  VisionSpec spec = spec_.vision.value();
  spec.window_side = 0;
  const auto here = [&](const Tensor& tensor) {
    return on_gpu() ? cuda::copy_to(tensor, placement_.device) : tensor;
  };
  for (int i = 0; i < kNumImages; ++i) {
    const std::string prefix = "image." + std::to_string(i) + ".";
    const auto item = prepare_image(golden_image(goldens_, i), spec.processor);
    const Tensor grid = goldens_.tensor(prefix + "grid"), expected = goldens_.tensor(prefix + "patches");
    EXPECT_EQ(item->rows * spec.processor.merge_size, grid.span<const int32_t>()[0]) << prefix;
    EXPECT_EQ(item->columns * spec.processor.merge_size, grid.span<const int32_t>()[1]) << prefix;
    const PatchLayout layout = make_patch_layout(*item, spec);
    const Tensor rows = here(Tensor::from<int32_t>(layout.patch_rows, {layout.num_patches})),
                 columns = here(Tensor::from<int32_t>(layout.patch_columns, {layout.num_patches}));
    const Tensor pixels = here(Tensor::from<uint8_t>(
        item->pixels.pixels, {item->pixels.height, item->pixels.width, Image::kChannels}));
    const Tensor patches =
        Tensor::empty({layout.num_patches, expected.shape(1)}, DType::kF32, placement_.device);
    kernels::ImagePatchesArgs args = patch_args(spec.processor);
    args.pixels = pixels;
    args.rows = rows.span<const int32_t>();
    args.columns = columns.span<const int32_t>();
    args.out = patches;
    kernels::image_patches(args, stream_);
    const Tensor result = on_host(patches, stream_);
    EXPECT_TRUE(std::ranges::equal(result.span<const float>(), expected.span<const float>())) << prefix;
  }
}

TEST_P(Vision, EncodesImagesAsTransformersDoes) {
  const auto tower = load();
  for (int i = 0; i < kNumImages; ++i)
    expect_rows(tower->encode(prepare_image(golden_image(goldens_, i), spec_.vision->processor), stream_), i);
}

TEST_P(Vision, EncodesImagesInRangesOfPatches) {
  const auto tower = load();
  for (int i = 0; i < kNumImages; ++i) {
    const auto item = prepare_image(golden_image(goldens_, i), spec_.vision->processor);
    int num_parts_of_one_range = 0;
    double flops_of_one_range = 0.0;
    for (const int range_patches : {1024, 16, 1}) {
      SCOPED_TRACE("ranges of " + std::to_string(range_patches));
      VisionEncoding encoding(*tower, item, stream_, range_patches);
      int num_parts = 1;
      double flops = encoding.part_flops();
      while (encoding.advance(stream_)) {
        ++num_parts;
        flops += encoding.part_flops();
      }
      EXPECT_FALSE(encoding.advance(stream_)) << "after the last part";
      EXPECT_EQ(encoding.part_flops(), 0.0) << "after the last part";
      expect_rows(encoding.rows(), i);
      if (num_parts_of_one_range == 0) {
        num_parts_of_one_range = num_parts;
        flops_of_one_range = flops;
      }
      // Windows of a range may be smaller than the largest one.
      if (spec_.vision->window_side == 0) {
        EXPECT_NEAR(flops, flops_of_one_range, 1e-6 * flops);
      }
      const bool has_ranges = item->num_tokens() * spec_.vision->processor.patches_per_token() > 16;
      if (range_patches < 1024 && has_ranges) {
        EXPECT_GT(num_parts, num_parts_of_one_range);
      }
    }
    EXPECT_EQ(num_parts_of_one_range, 1 + 2 * spec_.vision->num_layers);
  }
}

TEST_P(Vision, EncodesDummyWeightsToFiniteRows) {
  const auto tower = load(/*dummy=*/true);
  const auto item = prepare_image(golden_image(goldens_, 0), spec_.vision->processor);
  const Tensor rows = on_host(tower->encode(item, stream_), stream_);
  for (const float x : rows.span<const float>()) ASSERT_TRUE(std::isfinite(x));
}

std::string name_of(const Parameters& parameters) {
  const auto& [name, placement] = parameters;
  const bool on_cpu = placement.device.type == DeviceType::kCpu;
  return underscored(name) + (on_cpu ? "" : "_gpu_" + std::string(to_string(placement.dtype)));
}

INSTANTIATE_TEST_SUITE_P(, Vision,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Values(ModelPlacement{}, ModelPlacement{kGpu, DType::kF32},
                                                          ModelPlacement{kGpu, DType::kF16},
                                                          ModelPlacement{kGpu, DType::kBF16})),
                         [](const auto& param) { return name_of(param.param); });

TEST(ChooseSize, RoundsHalvesToEvenAndKeepsTheBounds) {
  const ImageProcessorSpec published{.patch_size = 14, .min_pixels = 3136, .max_pixels = 12845056};
  const auto size = [](int height, int width, const ImageProcessorSpec& spec) {
    const ImageSize chosen = choose_size(width, height, spec);
    return std::pair(chosen.height, chosen.width);
  };
  EXPECT_EQ(size(480, 640, published), std::pair(476, 644));
  EXPECT_EQ(size(70, 98, published), std::pair(56, 112));
  EXPECT_EQ(size(28, 5000, published), std::pair(28, 5012));
  const ImageProcessorSpec third{.patch_size = 16, .min_pixels = 65536, .max_pixels = 16777216};
  EXPECT_EQ(size(13, 13, third), std::pair(256, 256));
  EXPECT_EQ(size(1080, 1920, third), std::pair(1088, 1920));
}

TEST(ChooseSize, FitsTheLongestEdgeAndRoundsUp) {
  const ImageProcessorSpec pixtral{.sizing = ImageSizing::kLongestEdge, .patch_size = 14, .edge = 1540};
  const auto size = [&](int height, int width) {
    const ImageSize chosen = choose_size(width, height, pixtral);
    return std::pair(chosen.height, chosen.width);
  };
  EXPECT_EQ(size(480, 640), std::pair(504, 644));
  EXPECT_EQ(size(28, 56), std::pair(28, 56));
  EXPECT_EQ(size(1, 1), std::pair(28, 28));
  // 2000 / 1540 divides the height into 770 pixels.
  EXPECT_EQ(size(1000, 2000), std::pair(784, 1540));
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { size(1, 4000); }),
              HasSubstr("image of 4000 x 1: a side is shorter than a pixel if the other has 1540"));
}

TEST(ChooseSize, UsesTheBudgetOfTokens) {
  const ImageProcessorSpec gemma4{
      .sizing = ImageSizing::kTokenBudget, .patch_size = 16, .merge_size = 3, .max_tokens = 280};
  const auto size = [&](int height, int width) {
    const ImageSize chosen = choose_size(width, height, gemma4);
    return std::pair(chosen.height, chosen.width);
  };
  EXPECT_EQ(size(480, 640), std::pair(672, 912));
  EXPECT_EQ(size(1080, 1920), std::pair(576, 1056));
  EXPECT_EQ(size(13, 13), std::pair(768, 768));
  // One token on the short side, and 280 at most on the other.
  EXPECT_EQ(size(50, 5000), std::pair(48, 8016));
  EXPECT_EQ(size(20, 9000), std::pair(48, 13440));
  EXPECT_EQ(size(4000, 10), std::pair(13440, 48));
}

TEST(ChooseSize, StretchesToASquare) {
  const ImageProcessorSpec siglip{.sizing = ImageSizing::kSquare, .edge = 896};
  EXPECT_EQ(choose_size(4000, 3, siglip), (ImageSize{896, 896}));
}

TEST(ChooseSize, RejectsExtremeRatios) {
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [] { choose_size(65535, 1, {}); }),
              HasSubstr("image of 65535 x 1: the ratio of its sides is above 200"));
}

TEST(PatchLayout, OrdersTokensByWindowsWithShorterOnesAtTheEdges) {
  // 10 x 18 patches in windows of 4 x 4 tokens (arXiv 2502.13923, section 2.1.1).
  ImageItem image;
  image.rows = 5;
  image.columns = 9;
  const PatchLayout layout = make_patch_layout(image, {.window_side = 4});
  EXPECT_THAT(layout.cu_windows, ElementsAre(0, 64, 128, 144, 160, 176, 180));
  EXPECT_THAT(std::vector(layout.tokens.begin(), layout.tokens.begin() + 17),
              ElementsAre(0, 1, 2, 3, 9, 10, 11, 12, 18, 19, 20, 21, 27, 28, 29, 30, 4));
  EXPECT_THAT(std::vector(layout.patch_rows.begin(), layout.patch_rows.begin() + 4), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(std::vector(layout.patch_columns.begin(), layout.patch_columns.begin() + 4),
              ElementsAre(0, 1, 0, 1));
}

TEST(PromptPositions, ContinueAfterTheLargestPositionOfAnImage) {
  const ImageSpan image{.first_token = 3, .rows = 2, .columns = 3};
  const PromptPositions positions = prompt_positions(11, {&image, 1});
  EXPECT_THAT(positions.axes[0], ElementsAre(0, 1, 2, 3, 3, 3, 3, 3, 3, 6, 7));
  EXPECT_THAT(positions.axes[1], ElementsAre(0, 1, 2, 3, 3, 3, 4, 4, 4, 6, 7));
  EXPECT_THAT(positions.axes[2], ElementsAre(0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7));
  EXPECT_EQ(positions.delta, -3);
}

}  // namespace
}  // namespace attend
