// States and outputs of the chunk form on Hopper (delta_chunk_scan.cuh).
#pragma once

#include "attend/kernels/recurrent/cuda/common/delta_kernels.h"

namespace attend::kernels::cuda::sm90 {

// `slice`: rows of the state per CTA, 64 or 128, a divisor of dim_v. `two_ctas`: two CTAs of 64 rows per SM.
void launch_delta_chunk_scan_bf16(const DeltaChunkParams& params, int slice, bool two_ctas, void* stream);
void launch_delta_chunk_scan_f16(const DeltaChunkParams& params, int slice, bool two_ctas, void* stream);

}  // namespace attend::kernels::cuda::sm90
