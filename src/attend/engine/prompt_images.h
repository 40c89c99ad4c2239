// PromptImages: the images of a request, at their places in the prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attend/model/config/model_spec.h"
#include "attend/model/multimodal/image_item.h"

#pragma GCC visibility push(default)
namespace attend {

struct PlacedImage {
  std::shared_ptr<const ImageItem> image;
  int first_token = 0;

  int end_token() const { return first_token + image->num_tokens(); }
};

struct PromptImages {
  std::vector<PlacedImage> images;  // in the order of the prompt
  // Positions of the prompt's tokens on each axis, for models with three, and the position of a later token
  // minus its index. Empty: models with one axis.
  std::vector<int32_t> axes[3];
  int position_delta = 0;

  int32_t position(size_t axis, int token) const {
    const auto index = static_cast<size_t>(token);
    return index < axes[axis].size() ? axes[axis][index] : token + position_delta;
  }
};

// Decodes JPEG, PNG or WebP files for the model, and repeats the placeholder of each in `prompt` once per
// token of the image. Throws Error(kInvalidArgument) with the image's number for a file that cannot be
// decoded or prepared, and if the prompt has another number of placeholders.
std::shared_ptr<const PromptImages> place_images(const ModelSpec& model, std::span<const std::string> files,
                                                 std::vector<int32_t>& prompt);

// Returns prefix_keys() of the prompt: tokens of images have keys below -2^30 that depend on the image's
// pixels and on the token's index in it.
std::vector<int32_t> image_keys(const PromptImages& images, std::span<const int32_t> prompt);

}  // namespace attend
#pragma GCC visibility pop
