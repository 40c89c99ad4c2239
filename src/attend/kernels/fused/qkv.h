// What lies between a layer's input and its attention, as one piece of work.
#pragma once

#include "attend/kernels/gemm/linear.h"
#include "attend/kernels/norm_rope/norm_rope_store.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// linear(product), then norm_rope_store(rope, store): q and k of `rope` and v of `store` are parts of
// product.out. q and what is stored have the same bits as after these calls. On a GPU with the shared memory
// of Hopper it is one launch for up to 16 rows of bf16 whose heads turn as a whole, when q, k and v, in this
// order, are all of product.out; that one leaves k and v in product.out as they are. Heads with norms are
// part of it while the GPU has SMs for them all at once (132: 66 heads of up to 128). Shapes, dtypes and
// errors as of the two calls; Error(kInvalidArgument) also when k of `store` is not that of `rope`.
void qkv_norm_rope_store(const LinearArgs& product, const NormRopeArgs& rope, const StoreKvArgs& store,
                         Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
