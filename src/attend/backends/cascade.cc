#include "attend/backends/cascade.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/kernels/attention/attention.h"

namespace attend {
namespace {

using kernels::AttentionPlan;
using kernels::KvIndexKind;

constexpr kernels::AttentionMask kEveryKey{.causal = false};

// Decode steps, which cascade, have no tokens of images.
bool sees_all_before(const AttentionLayer& layer) {
  return layer.attention_mask() == kernels::AttentionMask{};
}

// Returns the plan keys of layers that see all keys.
std::vector<PlanKey> cascade_keys(const ModelGeometry& model) {
  std::vector<AttentionLayer> layers;
  for (const AttentionLayer& layer : model.layers)
    if (layer.kind == KvKind::kMha && !layer.has_sinks && sees_all_before(layer)) layers.push_back(layer);
  // All layers that share a plan use the cascade, or none.
  std::vector<PlanKey> keys = distinct_plans(layers);
  std::erase_if(keys, [&](const PlanKey& key) {
    return std::ranges::any_of(model.layers, [&](const AttentionLayer& layer) {
      return plan_key(layer) == key && (layer.has_sinks || layer.kind != KvKind::kMha);
    });
  });
  return keys;
}

// Treats all decoding requests as one with num_tokens queries.
kernels::AttentionPlanLimits shared_limits(const BackendSpec& spec, const BackendConfig& config,
                                           const PlanKey& key) {
  kernels::AttentionPlanLimits limits = plan_limits(spec, config, key);
  limits.max_tokens = limits.max_reqs;
  limits.max_reqs = 1;
  limits.max_kv_tokens = std::min<int64_t>(limits.max_kv_tokens, config.model.max_context_len);
  return limits;
}

int64_t row_width(const ModelGeometry& model) {
  int64_t width = 0;
  for (const PlanKey& key : cascade_keys(model))
    width = std::max(width, int64_t{key.num_q_heads} * key.head_dim_v);
  return width;
}

int64_t max_heads(const ModelGeometry& model) {
  int64_t heads = 0;
  for (const PlanKey& key : cascade_keys(model)) heads = std::max<int64_t>(heads, key.num_q_heads);
  return heads;
}

kernels::QueryBatch shared_queries(const SharedKeys& shared) {
  return {.cu_seqlen_q = shared.cu_seqlen_q,
          .seqlen_kv = shared.seqlen_kv,
          .max_seqlen_q = shared.num_reqs,
          .max_seqlen_kv = shared.num_keys};
}

}  // namespace

kernels::QueryBatch suffix_queries(kernels::QueryBatch queries, const SharedKeys& shared) {
  // The longest request may not share keys.
  if (queries.max_seqlen_kv > 0 && shared.num_reqs == queries.num_reqs())
    queries.max_seqlen_kv = std::max(1, queries.max_seqlen_kv - shared.num_keys);
  queries.seqlen_kv = shared.suffix_seqlen_kv;
  return queries;
}

bool Cascade::applies_to(const BackendConfig& config) {
  return config.cascade && !config.deterministic && !cascade_keys(config.model).empty();
}

Cascade::Cascade(const BackendSpec& spec, const BackendConfig& config)
    : suffix_index_(spec, config), max_context_len_(config.model.max_context_len) {
  for (const PlanKey& key : cascade_keys(config.model))
    work_.push_back({key, std::make_unique<AttentionPlan>(shared_limits(spec, config, key), config.device)});
  const int64_t max_tokens = config.limits.max_reqs;
  out_ = Tensor::empty({max_tokens * row_width(config.model)}, config.model.dtype, config.device);
  lse_ = Tensor::empty({max_tokens * max_heads(config.model)}, DType::kF32, config.device);
  suffix_lse_ = Tensor::empty({max_tokens * max_heads(config.model)}, DType::kF32, config.device);
}

size_t Cascade::num_bytes(const BackendSpec& spec, const BackendConfig& config) {
  size_t bytes = BatchIndex::num_bytes(spec, config);
  for (const PlanKey& key : cascade_keys(config.model))
    bytes += AttentionPlan::num_bytes(shared_limits(spec, config, key), config.device);
  const auto row_bytes = static_cast<size_t>(row_width(config.model)) * size_of(config.model.dtype) +
                         2 * static_cast<size_t>(max_heads(config.model)) * sizeof(float);
  return bytes + static_cast<size_t>(config.limits.max_reqs) * row_bytes;
}

bool Cascade::serves(const PlanKey& key) const {
  return std::ranges::find(work_, key, &PlannedKeys::key) != work_.end();
}

void Cascade::plan(const ForwardBatch& batch, const int32_t* table, Stream& stream) {
  // With stride 1 a row begins at every element of the table, so suffix_offsets are row numbers.
  suffix_index_.build({.table = table,
                       .stride = 1,
                       .rows = batch.shared.suffix_offsets,
                       .seqlen_kv = batch.shared.suffix_seqlen_kv,
                       .max_seqlen_kv = max_context_len_},
                      stream);
  const kernels::QueryBatch queries = shared_queries(batch.shared);
  for (PlannedKeys& planned : work_) planned.plan->plan(queries, kEveryKey, stream);
}

void Cascade::attend(const kernels::AttentionArgs& full_args, AttentionPlan& suffix_plan,
                     const SharedKeys& shared, Stream& stream) {
  const int64_t num_tokens = full_args.out.shape[0], num_heads = full_args.out.shape[1],
                head_dim = full_args.out.shape[2];
  const int64_t num_sharing = shared.num_reqs;  // one token each
  const auto found = std::ranges::find_if(work_, [&](const PlannedKeys& planned) {
    return planned.key.num_q_heads == num_heads && planned.key.head_dim_v == head_dim &&
           planned.key.num_kv_heads == full_args.kv.k.shape[2];
  });
  ensure(found != work_.end(), "cascade attention of a layer that it does not serve");

  // Other launches write between this layer's store and the last launch here: nothing is read early.
  kernels::AttentionArgs part = full_args;
  part.prefix_ready = false;
  part.q = full_args.q.slice(0, 0, num_sharing);
  part.out =
      out_.view().slice(0, 0, num_sharing * num_heads * head_dim).reshape({num_sharing, num_heads, head_dim});
  part.lse = lse_.view().slice(0, 0, num_sharing * num_heads).reshape({num_sharing, num_heads});
  part.batch = shared_queries(shared);
  part.attention_mask = kEveryKey;
  kernels::attention(part, *found->plan, stream);

  kernels::AttentionArgs own = full_args;
  own.prefix_ready = false;
  if (full_args.lse.empty())
    own.lse = suffix_lse_.view().slice(0, 0, num_tokens * num_heads).reshape({num_tokens, num_heads});
  own.kv.index = suffix_index_.get();
  own.batch = suffix_queries(full_args.batch, shared);
  kernels::attention(own, suffix_plan, stream);

  const TensorView out = own.out.slice(0, 0, num_sharing), lse = own.lse.slice(0, 0, num_sharing);
  kernels::merge({.out_a = out,
                  .out_b = part.out,
                  .lse_a = lse,
                  .lse_b = part.lse,
                  .out = out,
                  .lse = full_args.lse.empty() ? TensorView() : lse},
                 stream);
}

}  // namespace attend
