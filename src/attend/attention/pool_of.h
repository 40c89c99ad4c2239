// The KV pool that a model's layers need.
#pragma once

#include "attend/attention/attention_layer.h"
#include "attend/kv/kv_pool.h"

#pragma GCC visibility push(default)
namespace attend {

// A pool for these layers, without pages yet. GPUs keep a token's heads together, CPUs a head's tokens.
// Throws Error(kUnsupported) where layers differ in what a pool stores: naming them.
KvPoolConfig pool_of(const ModelGeometry& model, int page_size, Device device);

}  // namespace attend
#pragma GCC visibility pop
