#include "attend/model/multimodal/patch_layout.h"

#include <algorithm>

namespace attend {

PatchLayout make_patch_layout(const ImageItem& image, const VisionSpec& spec) {
  const int merge = spec.processor.merge_size;
  PatchLayout layout{.num_patches = image.num_tokens() * spec.processor.patches_per_token(),
                     .cu_windows = {0}};
  const int side = spec.window_side > 0 ? spec.window_side : std::max(image.rows, image.columns);
  for (int top = 0; top < image.rows; top += side)
    for (int left = 0; left < image.columns; left += side) {
      const int bottom = std::min(image.rows, top + side), right = std::min(image.columns, left + side);
      for (int row = top; row < bottom; ++row)
        for (int column = left; column < right; ++column)
          layout.tokens.push_back(row * image.columns + column);
      layout.cu_windows.push_back(static_cast<int32_t>(layout.tokens.size()) *
                                  spec.processor.patches_per_token());
    }
  for (const int32_t token : layout.tokens)
    for (int row = 0; row < merge; ++row)
      for (int column = 0; column < merge; ++column) {
        layout.patch_rows.push_back(token / image.columns * merge + row);
        layout.patch_columns.push_back(token % image.columns * merge + column);
      }
  return layout;
}

kernels::ImagePatchesArgs patch_args(const ImageProcessorSpec& spec) {
  kernels::ImagePatchesArgs args{.patch_size = spec.patch_size,
                                 .num_frames = std::max(1, spec.num_frames),
                                 .channels_last = spec.channels_last};
  // For pixels from 0 to 255, in float32 as torchvision computes them.
  for (size_t c = 0; c < args.mean.size(); ++c) {
    args.mean[c] = spec.mean[c] * 255.0f;
    args.deviation[c] = spec.std[c] * 255.0f;
  }
  if (spec.channels_last) args.num_frames = 1;
  return args;
}

}  // namespace attend
