// turn_rows (kernels/turn_rows.h) on a GPU: one launch.
#pragma once

#include "attend/kernels/norm_rope/turn_rows.h"

namespace attend::kernels::cuda {

void turn_rows(const TurnRowsArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda
