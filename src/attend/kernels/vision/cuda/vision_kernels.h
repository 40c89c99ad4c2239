// Kernels of vision towers: parameters and launches.
#pragma once

#include "attend/kernels/common/cuda/params.h"

namespace attend::kernels::cuda {

// See ImagePatchesArgs of vision.h.
struct ImagePatchesParams {
  const uint8_t* pixels;  // [height, width, 3]
  const int32_t *rows, *columns;
  DeviceRows out;
  float mean[3], deviation[3];
  int32_t num_patches, width, patch_size, num_frames;
  bool channels_last;
};
void launch_image_patches(const ImagePatchesParams& params, void* stream);

// Layout of TableTap of vision.h.
struct DeviceTap {
  int32_t row;
  float weight;
};
// out[i] += sum of weight * table[row] over taps_per_row taps.
struct AddTableRowsParams {
  const DeviceTap* taps;
  DeviceRows table, out;
  int32_t taps_per_row, num_rows, num_columns;
};
void launch_add_table_rows(const AddTableRowsParams& params, void* stream);

// out[token, channel * patches + patch] = x[token, patch * channels + channel].
struct JoinChannelsParams {
  DeviceRows x, out;
  int32_t num_tokens, num_patches, num_channels;
};
void launch_join_channels(const JoinChannelsParams& params, void* stream);

// out = (factor * mean of a token's patches - bias) * scale.
struct AveragePatchesParams {
  DeviceRows x, out;
  const float *bias, *scale;  // null: 0, 1
  float factor;
  int32_t num_tokens, num_patches, num_channels;
};
void launch_average_patches(const AveragePatchesParams& params, void* stream);

// out = min(max(x, *low), *high).
struct ClampBetweenParams {
  DeviceRows x, out;
  const float *low, *high;
  int32_t num_rows, num_columns;
};
void launch_clamp_between(const ClampBetweenParams& params, void* stream);

}  // namespace attend::kernels::cuda
