// Image: decoded pixels, and the decoders and the resampling that produce them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attend/media/content_hash.h"

#pragma GCC visibility push(default)
namespace attend {

// Pixels of 8-bit RGB: row y, column x, channel c is pixels[(y * width + x) * 3 + c].
struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> pixels = {};

  static constexpr int kChannels = 3;
  int64_t num_pixels() const { return int64_t{width} * height; }
};

struct ImageLimits {
  // Checked against the header, before pixels are allocated.
  int64_t max_pixels = int64_t{1} << 26;
  // Scans of a JPEG file: each one costs time for all pixels. Encoders write about 10.
  int max_scans = 100;
};

// Decodes JPEG, PNG or WebP to the pixels that the image processors of transformers read:
//   - the orientation of EXIF data is applied first,
//   - JPEG has accurate integer DCTs and smooth chroma upsampling; CMYK is converted as Pillow does,
//   - of animations the first frame is decoded; gamma and color profiles are ignored,
//   - transparent pixels appear on white; gray is repeated; of 16-bit channels the high byte remains.
// Throws Error(kUnsupported) for another format, Error(kCorruptFile) for damaged or truncated data, and
// Error(kInvalidArgument) for an image beyond the limits. Messages name format and size.
Image decode_image(std::span<const std::byte> file, const ImageLimits& limits = {});

enum class ResizeFilter : uint8_t { kBilinear, kBicubic };

// Resamples with antialiasing to the bytes that torchvision computes on a CPU (resize of a uint8 tensor):
// first rows, then columns. Filters widen with the scale when an image shrinks; bicubic has a = -0.5. Weights
// are rounded to integers, and each of the two passes rounds to bytes.
Image resize(const Image& image, int width, int height, ResizeFilter filter);

// Hash of an image: of its size and pixels.
ContentHash content_hash(const Image& image);

}  // namespace attend
#pragma GCC visibility pop
