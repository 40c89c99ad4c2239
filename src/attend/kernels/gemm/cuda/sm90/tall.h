// Gated dense layers of 65 to 256 rows by tall tiles, with TMA and wgmma, on GPUs of compute capability 9.0.
#pragma once

#include "attend/kernels/gemm/cuda/sm90/gated_mlp_gemm_shape.h"
#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm90 {

// Whether tall_tiles() takes these arguments: not on other devices, in builds without code for sm_90a, for
// other dtypes than bf16 and f16, for more than 256 rows, for rows of x or of the weight off 16 bytes, for
// outputs of another dtype than x or off 8 bytes, and for numbers of weight rows that 16 does not divide.
bool takes_tall_tiles(const LinearArgs& args, const Stream& stream);

// The share of the SMs' time that has tiles to multiply when a weight of so many rows meets so many rows of
// x: what tiles that do not come out even cost, 0 to 1.
double tall_tiles_evenness(int64_t num_weight_rows, int64_t num_rows, const Stream& stream);

// out = silu(gate) * up, [gate | up] = x weight^T (+ bias). A row's bits depend neither on the other rows nor
// on their number. There is no norm, and nothing is added to `out`.
void tall_tiles(const LinearArgs& args, Stream& stream);
// The same, shared as the caller says. Throws Error(kInvalidArgument) for a height that there is no kernel
// for.
void tall_tiles(const LinearArgs& args, const GatedMlpGemmShape& shape, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
