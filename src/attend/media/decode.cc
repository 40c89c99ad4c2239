#include <algorithm>
#include <cstring>
#include <utility>

#include "attend/media/decoders.h"

namespace attend {

void check_size(std::string_view format, int64_t width, int64_t height, const ImageLimits& limits) {
  if (width <= 0 || height <= 0)
    fail(ErrorCode::kCorruptFile, format, " image of ", width, " x ", height, ": expected at least 1 x 1");
  require(width <= limits.max_pixels / height, format, " image of ", width, " x ", height,
          " pixels: at most ", limits.max_pixels, " pixels are accepted");
}

Image over_white(int width, int height, std::span<const uint8_t> rgba) {
  Image image{.width = width, .height = height};
  image.pixels.resize(static_cast<size_t>(image.num_pixels()) * Image::kChannels);
  uint8_t* to = image.pixels.data();
  for (size_t i = 0; i < rgba.size(); i += 4) {
    const int alpha = rgba[i + 3];
    for (size_t channel = 0; channel < Image::kChannels; ++channel)
      *to++ = static_cast<uint8_t>((rgba[i + channel] * alpha + 255 * (255 - alpha) + 127) / 255);
  }
  return image;
}

int exif_orientation(std::span<const std::byte> exif) {
  constexpr int kOrientation = 0x0112, kShort = 3;
  constexpr size_t kEntryBytes = 12;
  if (exif.size() < 8) return 1;
  const auto byte = [&](size_t i) { return std::to_integer<uint32_t>(exif[i]); };
  const bool little = byte(0) == 'I';
  if (byte(0) != byte(1) || (!little && byte(0) != 'M')) return 1;
  const auto u16 = [&](size_t i) { return little ? byte(i) | byte(i + 1) << 8 : byte(i) << 8 | byte(i + 1); };
  const auto u32 = [&](size_t i) { return little ? u16(i) | u16(i + 2) << 16 : u16(i) << 16 | u16(i + 2); };
  if (u16(2) != 42) return 1;
  const size_t directory = u32(4);
  if (directory > exif.size() || exif.size() - directory < 2) return 1;
  const size_t num_entries = std::min<size_t>(u16(directory), (exif.size() - directory - 2) / kEntryBytes);
  for (size_t i = 0; i < num_entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (u16(entry) != kOrientation || u16(entry + 2) != kShort) continue;
    const uint32_t orientation = u16(entry + 8);
    return orientation >= 1 && orientation <= 8 ? static_cast<int>(orientation) : 1;
  }
  return 1;
}

Image orient(Image image, int orientation) {
  if (orientation == 1) return image;
  // Orientations from 5 on exchange rows and columns. Then columns, rows, or both are reversed.
  const bool transposed = orientation >= 5;
  const bool flips_x = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const bool flips_y = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  Image out{.width = transposed ? image.height : image.width,
            .height = transposed ? image.width : image.height,
            .pixels = std::vector<uint8_t>(image.pixels.size())};
  uint8_t* to = out.pixels.data();
  for (int y = 0; y < out.height; ++y)
    for (int x = 0; x < out.width; ++x, to += Image::kChannels) {
      const int column = flips_x ? out.width - 1 - x : x, row = flips_y ? out.height - 1 - y : y;
      const int64_t from =
          transposed ? int64_t{column} * image.width + row : int64_t{row} * image.width + column;
      std::memcpy(to, image.pixels.data() + from * Image::kChannels, Image::kChannels);
    }
  return out;
}

Image decode_image(std::span<const std::byte> file, const ImageLimits& limits) {
  const auto decode = [&]() -> OrientedImage {
    if (is_jpeg(file)) return decode_jpeg(file, limits);
    if (is_png(file)) return decode_png(file, limits);
    if (is_webp(file)) return decode_webp(file, limits);
    fail(ErrorCode::kUnsupported, "image of ", file.size(),
         " bytes: not a JPEG, PNG or WebP file according to its first bytes");
  };
  OrientedImage decoded = decode();
  return orient(std::move(decoded.image), decoded.orientation);
}

ContentHash content_hash(const Image& image) {
  // The size is part of the content: 30 x 150 and 150 x 30 pixels may have the same bytes.
  const int32_t size[] = {image.width, image.height};
  return content_hash({std::as_bytes(std::span(size)), std::as_bytes(std::span(image.pixels))});
}

}  // namespace attend
