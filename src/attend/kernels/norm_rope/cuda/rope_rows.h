// apply_rope_rows (rope_rows.h) on a GPU: one launch.
#pragma once

#include "attend/kernels/norm_rope/rope_rows.h"

namespace attend::kernels::cuda {

void apply_rope_rows(const RopeRowsArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda
