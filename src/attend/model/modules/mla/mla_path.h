// Selects the form of latent attention for a step.
//
//   absorbed  multiplies each query by W_UK and each output by W_UV
//             2 rank + rope_dim products per head, query and key
//   expanded  multiplies each key, including cached ones, by W_UK and W_UV
//             nope_dim + rope_dim + v_dim products per head, query and key
#pragma once

#include "attend/attention/forward_batch.h"
#include "attend/model/config/model_spec.h"

namespace attend {

// Number of products per head of a step in one layer.
double absorbed_products(const MlaSpec& spec, int64_t num_tokens, const PrefixInfo& prefix);
double expanded_products(const MlaSpec& spec, const PrefixInfo& prefix);

// Returns whether the expanded form has fewer products. Returns false for decode and verify steps, for steps
// without prefix lengths on the host, and for batch-invariant ones, where a token's bits must not depend on
// other requests.
bool use_expanded(const MlaSpec& spec, const ForwardBatch& batch, bool batch_invariant);

// Chunks of a prefix for expansion. Keys per request are limited by `capacity`, the rows for all requests.
struct PrefixChunks {
  int keys_per_request = 0, num_chunks = 0;
};
PrefixChunks prefix_chunks(const ForwardBatch& batch, int64_t capacity);

}  // namespace attend
