// Operations of vision towers that decoders do not have: patches of pixels, positions from tables, and
// neighboring patches joined to a token. Activations are f32 on the CPU, f32, f16 or bf16 on GPUs, with last
// stride 1. All arrays are in the memory of the stream's device. Indices are checked on the CPU; on a GPU the
// caller must have checked them.
#pragma once

#include <array>
#include <cstdint>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

struct ImagePatchesArgs {
  TensorView pixels = {};                       // u8 [height, width, 3], contiguous
  View<const int32_t> rows = {}, columns = {};  // [num_patches]: place of each patch, in patches
  int patch_size = 0;
  int num_frames = 1;  // equal frames of a patch
  // Pixels of a patch are (row, column, channel) instead of (channel, frame, row, column).
  bool channels_last = false;
  std::array<float, 3> mean{}, deviation{};  // of pixels from 0 to 255, per channel
  TensorView out = {};                       // [num_patches, 3 * num_frames * patch_size^2]
};
// Writes the pixels of each patch as (x - mean) / deviation or, with channels_last, 2 (x / 255 - 1/2). In f32
// all devices have the same bits. Throws Error(kInvalidArgument) for mismatched shapes and patches outside of
// the image.
void image_patches(const ImagePatchesArgs& args, Stream& stream);

// Row of a table in a weighted sum.
struct TableTap {
  int32_t row = 0;
  float weight = 0.0f;
};
struct AddTableRowsArgs {
  View<const TableTap> taps = {};  // [num_rows * taps_per_row]
  int taps_per_row = 1;
  TensorView table = {};  // [table_rows, features]: f32, f16, bf16, contiguous
  TensorView out = {};    // [num_rows, features]
};
// out[i] += sum of weight * table[row] over the taps of row i, in float32.
void add_table_rows(const AddTableRowsArgs& args, Stream& stream);

// out[token, channel * patches + patch] = x[token, patch * channels + channel], with `patches_per_token`
// patches. x, out: [num_tokens, patches * channels], of one dtype.
void join_channels(const TensorView& x, int64_t patches_per_token, const TensorView& out, Stream& stream);

struct AveragePatchesArgs {
  TensorView x = {};  // [num_tokens, patches * features]
  float factor = 1.0f;
  TensorView bias = {}, scale = {};  // f32 [features]; empty: 0 and 1
  TensorView out = {};               // [num_tokens, features]
};
// out = (factor * mean of a token's patches - bias) * scale.
void average_patches(const AveragePatchesArgs& args, Stream& stream);

// out = min(max(x, low), high). x, out: [num_rows, features] of one dtype; out may be x. low, high: f32 [1].
void clamp_between(const TensorView& x, const TensorView& low, const TensorView& high, const TensorView& out,
                   Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
