// Operations of vision.h on a GPU, for arguments that its functions have checked.
#pragma once

#include "attend/kernels/vision/vision.h"

namespace attend::kernels::cuda {

void image_patches(const ImagePatchesArgs& args, Stream& stream);
void add_table_rows(const AddTableRowsArgs& args, Stream& stream);
void join_channels(const TensorView& x, int64_t patches_per_token, const TensorView& out, Stream& stream);
void average_patches(const AveragePatchesArgs& args, Stream& stream);
void clamp_between(const TensorView& x, const TensorView& low, const TensorView& high, const TensorView& out,
                   Stream& stream);

}  // namespace attend::kernels::cuda
