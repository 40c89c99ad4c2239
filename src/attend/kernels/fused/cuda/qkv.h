// QKV projection, RoPE and the store of K/V in one launch on a GPU.
#pragma once

#include "attend/kernels/fused/operations.h"

namespace attend::kernels::cuda {

// Called by qkv_norm_rope_store() of norm_qkv_rope_store.h, which checks shapes. Returns false without
// launching if no kernel supports the combination.
bool qkv_norm_rope_store(const LinearArgs& product, const NormRopeArgs& rope, const StoreKvArgs& store,
                         Stream& stream);

}  // namespace attend::kernels::cuda
