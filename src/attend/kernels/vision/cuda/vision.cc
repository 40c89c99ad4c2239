#include "attend/kernels/vision/cuda/vision.h"

#include <cstddef>

#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/vision/cuda/vision_kernels.h"

namespace attend::kernels::cuda {

static_assert(sizeof(DeviceTap) == sizeof(TableTap) &&
              offsetof(DeviceTap, weight) == offsetof(TableTap, weight));

void image_patches(const ImagePatchesArgs& args, Stream& stream) {
  ImagePatchesParams params{.pixels = args.pixels.as<const uint8_t>(),
                            .rows = args.rows.data(),
                            .columns = args.columns.data(),
                            .out = device_rows(args.out),
                            .mean = {},
                            .deviation = {},
                            .num_patches = static_cast<int32_t>(args.out.shape[0]),
                            .width = static_cast<int32_t>(args.pixels.shape[1]),
                            .patch_size = args.patch_size,
                            .num_frames = args.num_frames,
                            .channels_last = args.channels_last};
  for (size_t c = 0; c < 3; ++c) {
    params.mean[c] = args.mean[c];
    params.deviation[c] = args.deviation[c];
  }
  launch_image_patches(params, stream.handle);
}

void add_table_rows(const AddTableRowsArgs& args, Stream& stream) {
  launch_add_table_rows({.taps = reinterpret_cast<const DeviceTap*>(args.taps.data()),
                         .table = device_rows(args.table),
                         .out = device_rows(args.out),
                         .taps_per_row = args.taps_per_row,
                         .num_rows = static_cast<int32_t>(args.out.shape[0]),
                         .num_columns = static_cast<int32_t>(args.out.shape[1])},
                        stream.handle);
}

void join_channels(const TensorView& x, int64_t patches_per_token, const TensorView& out, Stream& stream) {
  launch_join_channels({.x = device_rows(x),
                        .out = device_rows(out),
                        .num_tokens = static_cast<int32_t>(x.shape[0]),
                        .num_patches = static_cast<int32_t>(patches_per_token),
                        .num_channels = static_cast<int32_t>(x.shape[1] / patches_per_token)},
                       stream.handle);
}

void average_patches(const AveragePatchesArgs& args, Stream& stream) {
  launch_average_patches({.x = device_rows(args.x),
                          .out = device_rows(args.out),
                          .bias = args.bias.as<const float>(),
                          .scale = args.scale.as<const float>(),
                          .factor = args.factor,
                          .num_tokens = static_cast<int32_t>(args.x.shape[0]),
                          .num_patches = static_cast<int32_t>(args.x.shape[1] / args.out.shape[1]),
                          .num_channels = static_cast<int32_t>(args.out.shape[1])},
                         stream.handle);
}

void clamp_between(const TensorView& x, const TensorView& low, const TensorView& high, const TensorView& out,
                   Stream& stream) {
  launch_clamp_between({.x = device_rows(x),
                        .out = device_rows(out),
                        .low = low.as<const float>(),
                        .high = high.as<const float>(),
                        .num_rows = static_cast<int32_t>(x.shape[0]),
                        .num_columns = static_cast<int32_t>(x.shape[1])},
                       stream.handle);
}

}  // namespace attend::kernels::cuda
