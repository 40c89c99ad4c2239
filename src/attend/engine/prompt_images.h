// PromptImages: the images of a request, at their places in the prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attend/model/config/model_spec.h"
#include "attend/model/multimodal/image_item.h"
#include "attend/text/chat_template/chat_template.h"

#pragma GCC visibility push(default)
namespace attend {

// Adjacent tokens of an image in a prompt: all of them or, if other tokens end its rows, one row.
struct ImageRun {
  size_t image = 0;     // index into PromptImages::images
  int first_token = 0;  // in the prompt
  int first_row = 0;    // index of the first token in the image
  int num_tokens = 0;

  int end_token() const { return first_token + num_tokens; }
};

struct PromptImages {
  std::vector<std::shared_ptr<const ImageItem>> images;  // in the order of the prompt
  std::vector<ImageRun> runs;                            // in the order of the prompt
  // Tokens of a run attend to later ones of it: a step computes all of them.
  bool bidirectional = false;
  int32_t pad_id = -1;  // ImageMarkers::pad_id
  // Positions of the prompt's tokens on each axis, for models with three, and the position of a later token
  // minus its index. Empty: models with one axis.
  std::vector<int32_t> axes[3];
  int position_delta = 0;

  int32_t position(size_t axis, int token) const {
    const auto index = static_cast<size_t>(token);
    return index < axes[axis].size() ? axes[axis][index] : token + position_delta;
  }
};

// Decodes JPEG, PNG or WebP files for the model, and replaces the placeholder of each in `prompt` by the
// tokens of the image: one placeholder per token, and tokens at the ends of rows (ImageMarkers). Throws
// Error(kInvalidArgument) with the image's number for a file that cannot be decoded or prepared, and if the
// prompt has another number of placeholders.
std::shared_ptr<const PromptImages> place_images(const ModelSpec& model, std::span<const std::string> files,
                                                 std::vector<int32_t>& prompt);

// Sets the ids of tokens at the ends of rows that the tokenizer has.
void find_markers(const Tokenizer& tokenizer, ImageMarkers& markers);

// Replaces the text that a chat template writes for an image by the text with the model's placeholder
// (ImageMarkers::prompt_text). Text of a user is not changed.
void write_placeholders(const ModelSpec& model, std::vector<ChatTemplate::Part>& parts);
// Same for a text.
void write_placeholders(const ModelSpec& model, std::string& text);

// Returns prefix_keys() of the prompt: tokens of images have keys below -2^30 that depend on the image's
// pixels and on the token's index in it.
std::vector<int32_t> image_keys(const PromptImages& images, std::span<const int32_t> prompt);

}  // namespace attend
#pragma GCC visibility pop
