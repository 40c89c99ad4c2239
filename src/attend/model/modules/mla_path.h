// Which of the two forms of latent attention a step takes.
//
//   absorbed  every query is multiplied by W_UK and every output by W_UV; a pair of a query and a key is 2
//   rank +
//             rope_dim products a head
//   expanded  every key, cached ones too, is multiplied by W_UK and W_UV; a pair is nope_dim + rope_dim +
//   v_dim
#pragma once

#include "attend/attention/forward_batch.h"
#include "attend/model/config/model_spec.h"

namespace attend {

// Products of a step in one layer, for each head.
double absorbed_products(const MlaSpec& spec, int64_t num_tokens, const PrefixInfo& prefix);
double expanded_products(const MlaSpec& spec, const PrefixInfo& prefix);

// The form with fewer products. Always absorbed: decode and verify steps, steps whose prefixes the host does
// not know, and batch-invariant ones, since a token's bits would depend on the choice.
bool use_expanded(const MlaSpec& spec, const ForwardBatch& batch, bool batch_invariant);

// A prefix is expanded in chunks, as many keys of each request as `capacity` rows hold.
struct PrefixChunks {
  int keys_per_request = 0, num_chunks = 0;
};
PrefixChunks prefix_chunks(const ForwardBatch& batch, int64_t capacity);

}  // namespace attend
