// The product that q, k and v come from, with RoPE and the store, in one launch on a GPU.
#pragma once

#include "attend/kernels/fused/operations.h"

namespace attend::kernels::cuda {

// As qkv_norm_rope_store() of qkv.h, which checks shapes and calls this. Returns false, having done nothing,
// when no kernel does it all.
bool qkv_norm_rope_store(const LinearArgs& product, const NormRopeArgs& rope, const StoreKvArgs& store,
                         Stream& stream);

}  // namespace attend::kernels::cuda
