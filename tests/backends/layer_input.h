// Calls around a backend for one layer of a model: store new K and V at the backend's destination, then
// attend.
#pragma once

#include "attend/attention/backend.h"
#include "attend/kernels/kv_store/store.h"

namespace attend::conformance {

struct LayerInput {
  AttentionInput attend = {};
  TensorView k =
      {};  // [num_tokens, num_kv_heads, head_dim_qk]; MLA: [num_tokens, kv_lora_rank]; empty: already stored
  TensorView v = {};       // [num_tokens, num_kv_heads, head_dim_v]; MLA: empty
  TensorView k_rope = {};  // MLA: [num_tokens, rope_dim]
};

inline void attend_layer(AttentionBackend& backend, const AttentionLayer& layer, const LayerInput& input,
                         const ForwardBatch& batch, Stream& stream) {
  const KvDestination to = backend.destination(layer, batch);
  if (!input.k.empty() && layer.kind == KvKind::kMla)
    kernels::store_mla({.latent = input.k, .rope = input.k_rope, .to = to}, stream);
  else if (!input.k.empty())
    kernels::store_kv({.k = input.k, .v = input.v, .to = to}, stream);
  backend.forward(layer, input.attend, batch, stream);
}

}  // namespace attend::conformance
