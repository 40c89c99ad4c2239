#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "tests/media/image_files.h"
#include "tests/support/error_message.h"

namespace attend {
namespace {

using test::golden_image;
using test::image_folder;

TEST(Resize, HasTheBytesOfTorchvision) {
  const SafetensorsFile goldens(image_folder() / "golden.safetensors");
  int num_cases = 0;
  for (const auto& entry : goldens.entries()) {
    const std::string& name = entry.name;
    if (!name.starts_with("resize.")) continue;
    ++num_cases;
    const ResizeFilter filter =
        name.starts_with("resize.bicubic.") ? ResizeFilter::kBicubic : ResizeFilter::kBilinear;
    const bool is_noise = name.find(".noise.") != std::string::npos;
    const Image expected = golden_image(goldens, name);
    const Image image = resize(golden_image(goldens, is_noise ? "noise" : "rgb.png"), expected.width,
                               expected.height, filter);
    EXPECT_TRUE(image.pixels == expected.pixels) << name;
  }
  EXPECT_EQ(num_cases, 30);
}

TEST(Resize, RejectsAnEmptySize) {
  const Image image{.width = 1, .height = 1, .pixels = {1, 2, 3}};
  EXPECT_EQ(testing_support::error_message(ErrorCode::kInvalidArgument,
                                           [&] { (void)resize(image, 0, 3, ResizeFilter::kBicubic); }),
            "resize of 1 x 1 to 0 x 3: expected sizes of at least 1");
}

}  // namespace
}  // namespace attend
