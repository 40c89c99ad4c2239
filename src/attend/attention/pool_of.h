// The KV pool that a model's layers need.
#pragma once

#include <optional>

#include "attend/attention/attention_layer.h"
#include "attend/kv/kv_pool_config.h"

#pragma GCC visibility push(default)
namespace attend {

// Whether some layers have a sliding window and others none, so that a pool in two halves saves memory.
bool has_window_half(const ModelGeometry& model);

// The widest window of its layers, inclusive; 0 without any.
int widest_window_left(const ModelGeometry& model);

// How the half for layers with a window is sized; see SwaKvPool::Config.
struct SwaHalf {
  double full_tokens_ratio = 0.8;
  int min_tokens = 0;
};

// A pool for these layers, without pages yet. GPUs keep a token's heads together, CPUs a head's tokens. With
// `swa`, and where the model has_window_half, layers with a window get a half of their own. Throws
// Error(kUnsupported) where layers differ in what a pool stores: naming them.
KvPoolConfig pool_of(const ModelGeometry& model, int page_size, Device device,
                     const std::optional<SwaHalf>& swa = {});

}  // namespace attend
#pragma GCC visibility pop
