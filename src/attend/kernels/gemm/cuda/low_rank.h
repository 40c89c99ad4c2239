// Low-rank adapters on a GPU: a launch for each half. Arguments are those checked by
// kernels::shrink_low_rank and kernels::expand_low_rank.
#pragma once

#include "attend/kernels/gemm/low_rank.h"

namespace attend::kernels::cuda {

void shrink_low_rank(const LowRankInput& input, const LowRankProduct& product, const LowRankArrays& arrays,
                     Stream& stream);
void expand_low_rank(const LowRankInput& input, const LowRankProduct& product, const LowRankArrays& arrays,
                     Stream& stream);
bool supports_silu_mul(const LowRankInput& input, const LowRankProduct& product, const LowRankArrays& arrays,
                       const TensorView& out);
void expand_low_rank_silu_mul(const LowRankInput& input, const LowRankProduct& product,
                              const LowRankArrays& arrays, const TensorView& out, Stream& stream);

}  // namespace attend::kernels::cuda
