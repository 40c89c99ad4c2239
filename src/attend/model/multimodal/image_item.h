// ImageItem: an image of a prompt, prepared for the model's encoder.
#pragma once

#include <memory>

#include "attend/media/image.h"
#include "attend/model/config/vision_spec.h"

#pragma GCC visibility push(default)
namespace attend {

struct ImageItem {
  Image pixels;      // resized
  int rows = 0;      // tokens of a column of the image
  int columns = 0;   // tokens of a row
  ContentHash hash;  // of `pixels`: what K and V of the image's tokens depend on

  int num_tokens() const { return rows * columns; }
};

// Size to which a model's processor resizes an image of width x height, by spec.sizing. Throws
// Error(kInvalidArgument) for an image of which a side would be empty and, with kPixelBounds, for a ratio of
// its sides above 200.
struct ImageSize {
  int width = 0, height = 0;
  bool operator==(const ImageSize&) const = default;
};
ImageSize choose_size(int width, int height, const ImageProcessorSpec& spec);

// Resizes a decoded image for the model. Throws as choose_size().
std::shared_ptr<const ImageItem> prepare_image(const Image& image, const ImageProcessorSpec& spec);

}  // namespace attend
#pragma GCC visibility pop
