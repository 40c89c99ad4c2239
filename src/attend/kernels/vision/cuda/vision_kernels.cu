// Small operations of vision towers: patches of pixels, weighted rows of a table, channels of joined patches,
// means of patches, and clamps by numbers in device memory.
//
//   tile        one row (patch or token) per CTA; clamps: part of a row
//   warps       up to 8, all alike, neighboring threads have neighboring elements of the result
//   registers   26 to 32
//   shared      none
//   bytes       every row read and written once; patches read one byte per element and write two or four
//   bound       memory
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/row_groups.cuh"
#include "attend/kernels/vision/cuda/vision_kernels.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChannels = 3;
// transformers multiplies by this number and does not divide.
constexpr float kByteScale = static_cast<float>(1.0 / 255.0);

__device__ float load(const DeviceRows& rows, int64_t row, int column) {
  return load_element(rows.data, row_begin(rows, row) + column, rows.element);
}
__device__ void store(const DeviceRows& rows, int64_t row, int column, float value) {
  store_element(rows.data, row_begin(rows, row) + column, rows.element, value);
}

// Each operation is rounded on its own, as on the host.
__global__ void __launch_bounds__(kThreads)
    image_patches_kernel(const __grid_constant__ ImagePatchesParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const int64_t patch = blockIdx.x;
  const int size = params.patch_size, frame = size * size, count = kChannels * params.num_frames * frame;
  const int top = params.rows[patch] * size, left = params.columns[patch] * size;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    int channel, y, x;
    if (params.channels_last) {
      channel = i % kChannels;
      x = i / kChannels % size;
      y = i / kChannels / size;
    } else {
      channel = i / (params.num_frames * frame);
      x = i % size;
      y = i % frame / size;
    }
    const int64_t at = (int64_t{top + y} * params.width + left + x) * kChannels + channel;
    const auto byte = static_cast<float>(params.pixels[at]);
    const float value = params.channels_last
                            ? __fmul_rn(2.0f, __fsub_rn(__fmul_rn(byte, kByteScale), 0.5f))
                            : __fdiv_rn(__fsub_rn(byte, params.mean[channel]), params.deviation[channel]);
    store(params.out, patch, i, value);
  }
}

__global__ void __launch_bounds__(kThreads)
    add_table_rows_kernel(const __grid_constant__ AddTableRowsParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const int64_t row = blockIdx.x;
  const DeviceTap* const taps = params.taps + row * params.taps_per_row;
  for (int column = static_cast<int>(threadIdx.x); column < params.num_columns; column += kThreads) {
    float sum = 0.0f;
    for (int k = 0; k < params.taps_per_row; ++k)
      sum += taps[k].weight * load(params.table, taps[k].row, column);
    store(params.out, row, column, load(params.out, row, column) + sum);
  }
}

__global__ void __launch_bounds__(kThreads)
    join_channels_kernel(const __grid_constant__ JoinChannelsParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const int64_t token = blockIdx.x;
  const int count = params.num_patches * params.num_channels;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const int channel = i / params.num_patches, patch = i % params.num_patches;
    store(params.out, token, i, load(params.x, token, patch * params.num_channels + channel));
  }
}

__global__ void __launch_bounds__(kThreads)
    average_patches_kernel(const __grid_constant__ AveragePatchesParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const int64_t token = blockIdx.x;
  for (int channel = static_cast<int>(threadIdx.x); channel < params.num_channels; channel += kThreads) {
    float sum = 0.0f;
    for (int patch = 0; patch < params.num_patches; ++patch)
      sum += load(params.x, token, patch * params.num_channels + channel);
    float value = sum / static_cast<float>(params.num_patches) * params.factor;
    if (params.bias != nullptr) value -= params.bias[channel];
    if (params.scale != nullptr) value *= params.scale[channel];
    store(params.out, token, channel, value);
  }
}

// NaN stays NaN.
__global__ void __launch_bounds__(kThreads)
    clamp_between_kernel(const __grid_constant__ ClampBetweenParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const float low = *params.low, high = *params.high;
  const int64_t row = blockIdx.x;
  for (int column = static_cast<int>(blockIdx.y * kThreads + threadIdx.x); column < params.num_columns;
       column += static_cast<int>(gridDim.y * kThreads)) {
    const float x = load(params.x, row, column);
    store(params.out, row, column, x < low ? low : x > high ? high : x);
  }
}

}  // namespace

void launch_image_patches(const ImagePatchesParams& params, void* stream) {
  if (params.num_patches == 0) return;
  launch_dependent<ImagePatchesParams>(image_patches_kernel, dim3(static_cast<unsigned>(params.num_patches)),
                                       kThreads, 0, stream, params, "image_patches");
}

void launch_add_table_rows(const AddTableRowsParams& params, void* stream) {
  if (params.num_rows == 0) return;
  launch_dependent<AddTableRowsParams>(add_table_rows_kernel, dim3(static_cast<unsigned>(params.num_rows)),
                                       kThreads, 0, stream, params, "add_table_rows");
}

void launch_join_channels(const JoinChannelsParams& params, void* stream) {
  if (params.num_tokens == 0) return;
  launch_dependent<JoinChannelsParams>(join_channels_kernel, dim3(static_cast<unsigned>(params.num_tokens)),
                                       kThreads, 0, stream, params, "join_channels");
}

void launch_average_patches(const AveragePatchesParams& params, void* stream) {
  if (params.num_tokens == 0) return;
  launch_dependent<AveragePatchesParams>(average_patches_kernel,
                                         dim3(static_cast<unsigned>(params.num_tokens)), kThreads, 0, stream,
                                         params, "average_patches");
}

void launch_clamp_between(const ClampBetweenParams& params, void* stream) {
  if (params.num_rows == 0 || params.num_columns == 0) return;
  const auto parts = static_cast<unsigned>((params.num_columns + kThreads - 1) / kThreads);
  launch_dependent<ClampBetweenParams>(clamp_between_kernel,
                                       dim3(static_cast<unsigned>(params.num_rows), parts), kThreads, 0,
                                       stream, params, "clamp_between");
}

}  // namespace attend::kernels::cuda
