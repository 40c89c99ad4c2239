#include "attend/model/modules/mla/mla_path.h"

#include <algorithm>

#include "attend/base/math.h"

namespace attend {
namespace {

double projection(const MlaSpec& spec) { return 1.0 * (spec.nope_dim + spec.v_dim) * spec.kv_lora_rank; }

}  // namespace

double absorbed_products(const MlaSpec& spec, int64_t num_tokens, const PrefixInfo& prefix) {
  const int flops_per_pair = 2 * spec.kv_lora_rank + spec.rope_dim;
  return static_cast<double>(num_tokens) * projection(spec) +
         static_cast<double>(prefix.num_pairs) * flops_per_pair;
}

double expanded_products(const MlaSpec& spec, const PrefixInfo& prefix) {
  const int flops_per_pair = spec.nope_dim + spec.rope_dim + spec.v_dim;
  return static_cast<double>(prefix.num_kv_tokens) * projection(spec) +
         static_cast<double>(prefix.num_pairs) * flops_per_pair;
}

bool use_expanded(const MlaSpec& spec, const ForwardBatch& batch, bool batch_invariant) {
  if (batch_invariant || !can_expand(spec) || !batch.prefix || to_phase(batch.mode) == Phase::kDecode ||
      !batch.tree_mask.empty())
    return false;
  return expanded_products(spec, *batch.prefix) < absorbed_products(spec, batch.num_tokens, *batch.prefix);
}

PrefixChunks prefix_chunks(const ForwardBatch& batch, int64_t capacity) {
  const int keys = static_cast<int>(std::max<int64_t>(1, capacity / std::max(1, batch.num_reqs)));
  return {.keys_per_request = keys, .num_chunks = ceil_div(batch.prefix->max_prefix_len, keys)};
}

}  // namespace attend
