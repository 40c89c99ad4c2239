#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/media/image_files.h"
#include "tests/support/error_message.h"

namespace attend {
namespace {

using test::golden_image;
using test::image_folder;
using test::read_image_file;
using testing::HasSubstr;
using testing_support::error_message;

std::vector<std::string> image_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(image_folder()))
    if (entry.path().extension() != ".safetensors") names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

TEST(DecodeImage, HasThePixelsOfTheGoldens) {
  const SafetensorsFile goldens(image_folder() / "golden.safetensors");
  const std::vector<std::string> names = image_names();
  ASSERT_GE(names.size(), 29u);
  for (const std::string& name : names) {
    const Image image = decode_image(read_image_file(name)), expected = golden_image(goldens, name);
    EXPECT_EQ(image.width, expected.width) << name;
    EXPECT_EQ(image.height, expected.height) << name;
    EXPECT_TRUE(image.pixels == expected.pixels) << name << ": pixels differ";
  }
}

TEST(DecodeImage, RejectsTruncatedFilesOfEveryFormat) {
  for (const std::string& name : image_names()) {
    const std::vector<std::byte> file = read_image_file(name);
    for (const size_t size : {file.size() / 4, file.size() / 2, file.size() * 3 / 4}) {
      try {
        (void)decode_image(std::span(file).first(size));
        ADD_FAILURE() << name << " with " << size << " of " << file.size() << " bytes was decoded";
      } catch (const Error& error) {
        EXPECT_EQ(to_string(error.code()), to_string(ErrorCode::kCorruptFile))
            << name << ": " << error.what();
      }
    }
  }
}

TEST(DecodeImage, DecodesAJpegWithoutItsEndMarker) {
  std::vector<std::byte> file = read_image_file("rgb.jpg");
  const Image whole = decode_image(file);
  file.resize(file.size() - 2);
  EXPECT_TRUE(decode_image(file).pixels == whole.pixels);
}

TEST(DecodeImage, RejectsMorePixelsThanTheLimitBeforeItReadsThem) {
  for (const std::string name : {"rgb.jpg", "rgb.png", "lossy.webp"}) {
    const std::vector<std::byte> file = read_image_file(name);
    const auto message = [&](size_t size) {
      return error_message(ErrorCode::kInvalidArgument,
                           [&] { (void)decode_image(std::span(file).first(size), {.max_pixels = 1000}); });
    };
    EXPECT_THAT(message(file.size()), HasSubstr("43 x 31 pixels: at most 1000 pixels are accepted")) << name;
  }
}

TEST(DecodeImage, RejectsMoreScansThanTheLimit) {
  const std::vector<std::byte> file = read_image_file("progressive.jpg");
  EXPECT_THAT(error_message(ErrorCode::kCorruptFile, [&] { (void)decode_image(file, {.max_scans = 3}); }),
              HasSubstr("more than 3 scans"));
}

TEST(DecodeImage, RejectsOtherFormats) {
  for (const std::string& text : {std::string(), std::string("GIF89a..."), std::string("\xff\xd8")})
    EXPECT_THAT(
        error_message(ErrorCode::kUnsupported, [&] { (void)decode_image(std::as_bytes(std::span(text))); }),
        HasSubstr("not a JPEG, PNG or WebP file"));
}

TEST(ContentHash, DependsOnSizeAndPixels) {
  const Image wide{.width = 2, .height = 1, .pixels = {1, 2, 3, 4, 5, 6}};
  Image high = wide;
  std::swap(high.width, high.height);
  Image other = wide;
  ++other.pixels.back();
  EXPECT_EQ(content_hash(wide), content_hash(Image(wide)));
  EXPECT_NE(content_hash(wide), content_hash(high));
  EXPECT_NE(content_hash(wide), content_hash(other));
}

}  // namespace
}  // namespace attend
