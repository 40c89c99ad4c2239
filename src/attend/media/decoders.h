// Decoders of image formats. Internal to the media floor.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "attend/base/error.h"
#include "attend/media/image.h"

namespace attend {

// Orientation of EXIF data, 1 to 8 (Exif 2.32, section 4.6.4, tag 0x0112). 1: as stored.
struct OrientedImage {
  Image image;
  int orientation = 1;
};

// Whether the file starts with the format's signature, and its decoder. They throw as decode_image() does.
bool is_jpeg(std::span<const std::byte> file);
bool is_png(std::span<const std::byte> file);
bool is_webp(std::span<const std::byte> file);
OrientedImage decode_jpeg(std::span<const std::byte> file, const ImageLimits& limits);
OrientedImage decode_png(std::span<const std::byte> file, const ImageLimits& limits);
OrientedImage decode_webp(std::span<const std::byte> file, const ImageLimits& limits);

// Checks a size from a header. Throws Error(kInvalidArgument).
void check_size(std::string_view format, int64_t width, int64_t height, const ImageLimits& limits);

// Returns pixels of RGBA as they appear on a white background: c a / 255 + 255 - a, rounded.
Image over_white(int width, int height, std::span<const uint8_t> rgba);
// Returns the orientation of EXIF data, a TIFF structure without the "Exif" marker; 1 if it has none.
int exif_orientation(std::span<const std::byte> exif);
// Returns the image as it is displayed.
Image orient(Image image, int orientation);

}  // namespace attend
