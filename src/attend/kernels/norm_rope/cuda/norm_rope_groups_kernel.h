// norm_rope() where heads can be moved eight elements at once.
#pragma once

#include "attend/kernels/norm_rope/cuda/elementwise_kernels.h"

namespace attend::kernels::cuda {

// Whether all of every head is rotated, in 16-bit elements of one type, norms included, and rows and halves
// of heads, also in the cache, are whole groups of eight that begin where one access can read them.
bool takes_groups(const NormRopeParams& params);

// The bits of launch_norm_rope(), which calls this for what takes_groups().
void launch_norm_rope_groups(const NormRopeParams& params, void* stream);

}  // namespace attend::kernels::cuda
