// PatchLayout: the order of an image's patches in a vision tower, and the ranges that attend to each other.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/kernels/vision/vision.h"
#include "attend/model/config/vision_spec.h"
#include "attend/model/multimodal/image_item.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Patches of one token are adjacent, row by row. Without windows tokens are ordered row by row; with windows
// those of a window are adjacent, windows and their tokens row by row, and windows at the right and lower
// edges may be smaller.
struct PatchLayout {
  int num_patches = 0;
  std::vector<int32_t> tokens = {};  // [num_tokens]: the image's token (row by row) at each place
  std::vector<int32_t> patch_rows = {}, patch_columns = {};  // [num_patches]
  std::vector<int32_t> cu_windows;  // [num_windows + 1]: patches of windows; without windows {0, num_patches}
};
PatchLayout make_patch_layout(const ImageItem& image, const VisionSpec& spec);

// Arguments of kernels::image_patches() that the processor determines.
kernels::ImagePatchesArgs patch_args(const ImageProcessorSpec& spec);

}  // namespace attend
