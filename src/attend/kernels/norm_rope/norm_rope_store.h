// Norms of heads, RoPE and the store of K and V as one piece of work.
#pragma once

#include "attend/kernels/kv_store/store.h"
#include "attend/kernels/norm_rope/rope.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// norm_rope(rope) and then store_kv(store), whose k is that of `rope`; what is stored has the same bits. On a
// GPU it is one launch, which leaves k itself as it is.
void norm_rope_store(const NormRopeArgs& rope, const StoreKvArgs& store, Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
