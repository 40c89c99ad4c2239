// VisionSpec: a model's encoder of images, as data read from its config files.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "attend/kernels/fused/operations.h"

#pragma GCC visibility push(default)
namespace attend {

// Preparation of an image: it is resized so that both sides are multiples of factor() and the number of
// pixels is within bounds, normalized to (x / 255 - mean) / std, and cut into square patches.
struct ImageProcessorSpec {
  int patch_size = 14;
  int merge_size = 2;  // side of a square of patches that becomes one token
  int num_frames = 2;  // frames of a patch; those of a still image are equal
  int64_t min_pixels = 3136, max_pixels = 1003520;
  std::array<float, 3> mean{}, std{};  // per channel

  int factor() const { return patch_size * merge_size; }
  int patches_per_token() const { return merge_size * merge_size; }
  // Numbers of a patch: channels, frames, rows, columns.
  std::array<int64_t, 4> patch_axes() const { return {3, num_frames, patch_size, patch_size}; }
};

// Vision transformer (arXiv 2010.11929) over the patches of one image:
//
//   x = W patch + b, plus a learned position embedding, bilinearly interpolated to the image's grid
//   per layer: x += proj(attention(rope(qkv(norm1(x))))); x += mlp(norm2(x))
//   token = fc2(gelu(fc1(norm(x) of merge_size^2 neighboring patches)))
//
// Half of a head's rotated pairs have angles of the patch's row, the other half those of its column.
struct VisionSpec {
  ImageProcessorSpec processor = {};
  int num_layers = 0;
  int hidden_size = 0;
  int num_heads = 0;
  int intermediate_size = 0;
  int out_size = 0;  // features of a token: the decoder's hidden_size
  kernels::NormKind norm_kind = kernels::NormKind::kLayer;
  float norm_eps = 1e-6f;
  bool patch_bias = false;
  bool gated_mlp = false;                                                     // with SiLU
  kernels::PlainActivation activation = kernels::PlainActivation::kGeluTanh;  // of MLPs without a gate
  int position_side = 0;  // side of the square grid of learned positions; 0: none
  // Side of the windows in which layers attend, in tokens, and the layers that attend to the whole image. 0:
  // all do.
  int window_side = 0;
  std::vector<int> full_layers = {};
  // Layers with an own projection of their output. The decoder adds the i-th of these rows to the residual
  // stream after its layer i (DeepStack, arXiv 2406.04334).
  std::vector<int> deepstack_layers = {};

  int head_dim() const { return hidden_size / num_heads; }
  // Features of an encoded row: those of the token's embedding, then those of the deepstack layers.
  int64_t row_size() const { return int64_t{out_size} * (1 + static_cast<int64_t>(deepstack_layers.size())); }
};

}  // namespace attend
#pragma GCC visibility pop
