#include "attend/model/modules/mla/indexer.h"

#include "attend/kernels/gemm/linear.h"
#include "attend/kernels/kv_store/store.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/norm_rope/rope.h"

namespace attend {

Indexer::Indexer(const MlaSpec& mla, int64_t hidden_size, const DecoderNames& names)
    : spec_(*mla.indexer),
      hidden_size_(hidden_size),
      q_lora_rank_(mla.q_lora_rank),
      rope_dim_(mla.rope_dim),
      names_(names),
      k_norm_{.eps = spec_.norm_eps, .kind = kernels::NormKind::kLayer} {}

// Every rank selects the keys for all heads, so all weights are replicated.
void Indexer::add_slots(SlotWriter& slots) {
  const int64_t num_heads = spec_.num_heads, head_dim = spec_.head_dim;
  slots.linear({{names_.index_k_proj, head_dim, head_dim, /*is_replicated=*/true},
                {names_.index_weights_proj, num_heads, num_heads, /*is_replicated=*/true}},
               hidden_size_, /*bias=*/false, ShardAxis::kNone, k_and_weights_);
  slots.norm(names_.index_k_norm, head_dim, k_norm_.weight);
  slots.norm_bias(names_.index_k_norm, head_dim, k_norm_.bias);
  slots.linear({{names_.index_q_proj, num_heads * head_dim, head_dim, /*is_replicated=*/true}}, q_lora_rank_,
               /*bias=*/false, ShardAxis::kNone, q_);
}

std::vector<int64_t> Indexer::scratch_widths() const {
  return {spec_.head_dim + spec_.num_heads, int64_t{spec_.num_heads} * spec_.head_dim};
}

void Indexer::rotate(const TensorView& heads, const RopeRows& rope, Stream& stream) const {
  kernels::rope(heads, rope.positions, rope.cos, rope.sin, stream, spec_.interleaved_rope);
}

TensorView Indexer::store_keys(ModuleStep& step, const kernels::Norm& norm, const RopeRows& rope,
                               const TensorView& cache, View<const int32_t> slots) const {
  const int64_t head_dim = spec_.head_dim, plain_dim = head_dim - rope_dim_;
  Stream& stream = step.context.stream;
  const TensorView projected = step.scratch.take(head_dim + spec_.num_heads);
  kernels::norm_linear(step.residual, {.norm = norm, .linear = k_and_weights_, .out = projected},
                       step.context);
  const TensorView k = projected.slice(1, 0, head_dim);
  kernels::layer_norm(k, k_norm_.weight, k_norm_.bias, k_norm_.eps, k, stream);
  rotate(k.split(1, head_dim), rope, stream);
  // An index key is stored like the two parts of a latent row.
  kernels::store_mla({.latent = k.slice(1, 0, plain_dim),
                      .rope = k.slice(1, plain_dim, head_dim),
                      .to = {.k = cache, .slots = slots}},
                     stream);
  return projected.slice(1, head_dim, head_dim + spec_.num_heads);
}

TensorView Indexer::queries(ModuleStep& step, const TensorView& q_latent, const RopeRows& rope) const {
  const TensorView q = step.scratch.take(int64_t{spec_.num_heads} * spec_.head_dim);
  kernels::linear(q_latent, q_.front(), q, step.context);
  const TensorView heads = q.split(1, spec_.head_dim);
  rotate(heads, rope, step.context.stream);
  return heads;
}

}  // namespace attend
