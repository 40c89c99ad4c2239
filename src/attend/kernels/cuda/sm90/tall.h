// Dense layers by tall tiles, with TMA and wgmma, on GPUs of compute capability 9.0: for large weights, with
// the norm of x and SiLU inside.
#pragma once

#include <vector>

#include "attend/kernels/cuda/sm90/tall_shape.h"
#include "attend/kernels/linear.h"

namespace attend::kernels::cuda::sm90 {

// Whether tall_tiles() takes these arguments: not on other devices, in builds without code for sm_90a, for
// other dtypes than bf16 and f16, for rows of x or of the weight off 16 bytes, for outputs and biases off two
// elements, and for numbers of weight rows that 16 does not divide.
bool takes_tall_tiles(const LinearArgs& args, const Stream& stream);
// Whether it norms these rows of x as well: what the kernel for few rows norms, but up to 128 rows.
bool norms_tall_tiles(const InputNorm& norm, const TensorView& x);
// Heights of tiles, in 16 rows, that there are kernels for with so many groups of 64 rows of x: 1, 2 or 4.
std::vector<int> tile_pairs_of(int token_groups);

// out = norm(x) weight^T (+ bias) (+ out); `gated`: silu(gate) * up of its two halves. The norm, where there
// is one, is one that it does. A row's bits depend neither on the other rows nor on their number.
void tall_tiles(const LinearArgs& args, bool gated, Stream& stream);
// The same of up to 64 * shape.token_groups rows, shared as the caller says. Throws Error(kInvalidArgument)
// for a shape that there is no kernel for.
void tall_tiles(const LinearArgs& args, bool gated, const TallShape& shape, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
