// VisionSpec: a model's encoder of images, as data read from its config files.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "attend/kernels/fused/operations.h"
#include "attend/media/image.h"

#pragma GCC visibility push(default)
namespace attend {

// Rule for the size to which an image is resized. Sides are multiples of ImageProcessorSpec::factor().
enum class ImageSizing : uint8_t {
  kPixelBounds,  // about the image's own size, with a number of pixels from min_pixels to max_pixels
  kSquare,       // edge x edge: the image is stretched
  kLongestEdge,  // larger images shrink until no side is above `edge`; then sides are rounded up
  kTokenBudget,  // images grow or shrink to at most max_tokens tokens, with about their ratio of sides
};

// Preparation of an image: it is resized, normalized to (x / 255 - mean) / std, and cut into square patches.
struct ImageProcessorSpec {
  ImageSizing sizing = ImageSizing::kPixelBounds;
  ResizeFilter filter = ResizeFilter::kBicubic;
  int patch_size = 14;
  int merge_size = 2;  // side of a square of patches that becomes one token
  int num_frames = 2;  // frames of a patch; those of a still image are equal; 0: patches have no such axis
  int64_t min_pixels = 3136, max_pixels = 1003520;  // kPixelBounds
  int edge = 0;                                     // kSquare, kLongestEdge
  int max_tokens = 0;                               // kTokenBudget
  // Pixels of a patch are (row, column, channel) instead of (channel, row, column), and 2 (x / 255 - 1/2)
  // without mean and std.
  bool channels_last = false;
  std::array<float, 3> mean{}, std{};  // per channel

  int factor() const { return patch_size * merge_size; }
  int patches_per_token() const { return merge_size * merge_size; }
  // Numbers of a patch: channels, frames, rows, columns.
  std::vector<int64_t> patch_axes() const {
    if (channels_last) return {Image::kChannels * patch_size * patch_size};
    if (num_frames == 0) return {Image::kChannels, patch_size, patch_size};
    return {Image::kChannels, num_frames, patch_size, patch_size};
  }
};

// Projection of neighboring patches to one token of the decoder.
enum class VisionMerge : uint8_t {
  kJoin,         // fc2(gelu(fc1([norm(x_1), norm(x_2), ...])))
  kMean,         // W norm2(mean(norm(x)))
  kScaledMean,   // W norm(sqrt(hidden_size) mean(x)), with standardized means if `standardizes`
  kChannelJoin,  // fc2(gelu(fc1(W [norm(x)_1, norm(x)_2, ...]))), where each channel of all patches is
                 // adjacent
};

// Text and tokens of an image in a prompt, other than its placeholders.
struct ImageMarkers {
  // Text that a chat template writes for an image, and the text that is tokenized instead of it. Empty: the
  // template writes the placeholder.
  std::string_view template_text = {}, prompt_text = {};
  // Tokens before the image, after each row of its tokens but the last, and after the image; -1: none. Names
  // in the tokenizer, which replaces the ids if it has them.
  int32_t image_begin_id = -1, row_end_id = -1, image_end_id = -1;
  std::string_view row_end = {}, image_end = {};
  // Id of which the tokens of an image have the embeddings per layer; -1: the placeholder's.
  int32_t pad_id = -1;
};

// Vision transformer (arXiv 2010.11929) over the patches of one image:
//
//   x = W patch + b, plus a learned position embedding, bilinearly interpolated to the image's grid; or
//   x = norm(W patch)
//   per layer: x += proj(attention(rope(qkv(norm1(x))))); x += mlp(norm2(x)); or with norms of the addends
//   token = merge(x of merge_size^2 neighboring patches), see VisionMerge
//
// With D = head_dim, pair j < D / 4 of a head is rotated by row * theta^(-4 j / D), and pair D / 4 + j by
// column * theta^(-(4 j + column_shift) / D). With split_heads, the first half of a head has the pairs of the
// column and the second half those of the row: dims j and D / 4 + j of a half.
struct VisionSpec {
  ImageProcessorSpec processor = {};
  ImageMarkers markers = {};
  int num_layers = 0;
  int hidden_size = 0;
  int num_heads = 0;
  int intermediate_size = 0;
  int out_size = 0;  // features of a token: the decoder's hidden_size
  kernels::NormKind norm_kind = kernels::NormKind::kLayer;
  float norm_eps = 1e-6f;
  bool patch_bias = false;
  bool first_norm = false;  // after the patch embedding
  bool biases = true;       // of the layers' projections
  bool rotates = true;      // queries and keys have rotary embeddings
  double rope_theta = 10000.0;
  int column_shift = 0;
  bool split_heads = false;
  bool head_norms = false;       // q and k have an RMSNorm per head, v one without weights
  float attention_scale = 0.0f;  // 0: 1 / sqrt(head_dim)
  bool post_norms = false;       // of what attention and MLP add
  // Inputs and outputs of the layers' projections are clamped to bounds of the checkpoint.
  bool clamps = false;
  bool gated_mlp = false;
  kernels::Activation gate = kernels::Activation::kSilu;
  kernels::PlainActivation activation = kernels::PlainActivation::kGeluTanh;  // of MLPs without a gate
  int position_side = 0;  // side of the square grid of learned positions; 0: none
  // Learned positions of columns and of rows, which are added, without interpolation; 0: none.
  int axis_positions = 0;
  // Side of the windows in which layers attend, in tokens, and the layers that attend to the whole image. 0:
  // all do.
  int window_side = 0;
  std::vector<int> full_layers = {};
  VisionMerge merge = VisionMerge::kJoin;
  bool merge_biases = true;
  bool standardizes = false;  // kScaledMean: (x - bias) * scale
  float merge_eps = 1e-6f;    // of the norms of `merge`, but those of patches with kMean, which have norm_eps
  // Layers with an own projection of their output. The decoder adds the i-th of these rows to the residual
  // stream after its layer i (DeepStack, arXiv 2406.04334).
  std::vector<int> deepstack_layers = {};

  int head_dim() const { return hidden_size / num_heads; }
  // Features of an encoded row: those of the token's embedding, then those of the deepstack layers.
  int64_t row_size() const { return int64_t{out_size} * (1 + static_cast<int64_t>(deepstack_layers.size())); }
};

}  // namespace attend
#pragma GCC visibility pop
