#include "attend/backends/sparse_backend.h"

#include <algorithm>

#include "attend/base/error.h"

namespace attend {
namespace {

constexpr BackendSpec kDenseSpec{.index = kernels::KvIndexKind::kRequestRows};

kernels::SparseMlaLimits sparse_limits(const BackendConfig& config) {
  require(!config.model.layers.empty(), "dsa: the model has no attention layers");
  const AttentionLayer& first = config.model.layers.front();
  for (const AttentionLayer& layer : config.model.layers)
    if (layer.indexer.top_k == 0 || layer.indexer.top_k != first.indexer.top_k ||
        layer.num_q_heads != first.num_q_heads || layer.head_dim_v != first.head_dim_v)
      fail(ErrorCode::kUnsupported, "layer ", layer.layer_id, " with ", layer.num_q_heads,
           " heads and top_k ", layer.indexer.top_k, ": dsa needs layers like layer ", first.layer_id,
           ", with ", first.num_q_heads, " heads and top_k ", first.indexer.top_k);
  return {.max_tokens = config.limits.max_tokens,
          .max_keys = config.model.max_context_len,
          .top_k = first.indexer.top_k,
          .num_q_heads = first.num_q_heads,
          .kv_lora_rank = first.head_dim_v,
          .batch_invariant = config.deterministic,
          .kv_dtype = config.model.kv_dtype};
}

kernels::QueryBatch query_batch(const ForwardBatch& batch) {
  return {.cu_seqlen_q = batch.cu_seqlen_q,
          .seqlen_kv = batch.seqlen_kv,
          .max_seqlen_q = batch.max_seqlen_q,
          .max_seqlen_kv = batch.max_seqlen_kv,
          .tree_mask = batch.tree_mask};
}

}  // namespace

SparseBackend::SparseBackend(const BackendContext& context)
    : dense_(kDenseSpec, context),
      config_(context.config),
      request_table_(context.request_table),
      pool_(context.pool),
      sparse_(sparse_limits(context.config), context.config.device) {}

std::unique_ptr<AttentionBackend> SparseBackend::create(const BackendContext& context) {
  return std::make_unique<SparseBackend>(context);
}

size_t SparseBackend::workspace_bytes(const BackendConfig& config) {
  return KernelBackend::workspace_bytes(kDenseSpec, config) +
         kernels::SparseMlaPlan::num_bytes(sparse_limits(config));
}

void SparseBackend::plan(const ForwardBatch& batch, Stream& stream) {
  dense_.plan(batch, stream);
  const KeyIndexer& indexer = config_.model.layers.front().indexer;
  is_planned_ = batch.num_tokens > 0 && batch.tree_mask.empty() &&
                indexer.selects(batch.max_seqlen_kv, config_.deterministic);
  has_selection_ = false;
  if (is_planned_) sparse_.plan(query_batch(batch), batch.num_tokens, stream);
}

KvDestination SparseBackend::destination(const AttentionLayer& layer, const ForwardBatch& batch) {
  return dense_.destination(layer, batch);
}

TensorView SparseBackend::index_keys(const AttentionLayer& layer) { return pool_.index_keys(layer.layer_id); }

void SparseBackend::forward(const AttentionLayer& layer, const AttentionInput& input,
                            const ForwardBatch& batch, Stream& stream) {
  if (!input.selects_keys || batch.num_tokens == 0) return dense_.forward(layer, input, batch, stream);
  require(is_planned_ && sparse_.num_tokens() == batch.num_tokens, "layer ", layer.layer_id,
          ": selects keys in a step that is not planned for it");
  if (!input.index_q.empty()) {
    kernels::select_keys({.q = input.index_q,
                          .weights = input.index_weights,
                          .k = pool_.index_keys(layer.layer_id),
                          .index = {.kind = kernels::KvIndexKind::kRequestRows,
                                    .page_size = config_.page_size,
                                    .table = request_table_.as<int32_t>(),
                                    .table_stride = request_table_.strides[0],
                                    .rows = raw(batch.request_rows).data()},
                          .batch = query_batch(batch)},
                         sparse_, stream);
    has_selection_ = true;
  }
  require(has_selection_, "layer ", layer.layer_id, ": no layer before it has selected keys in this step");
  kernels::sparse_mla({.q = input.q,
                       .q_rope = input.q_rope,
                       .out = input.out,
                       .lse = input.lse,
                       .latent = pool_.latent(layer.layer_id),
                       .scale_kv = pool_.layer(layer.layer_id).k_scale,
                       .score = {.scale = layer.scale, .logit_cap = layer.logit_cap, .sinks = layer.sinks}},
                      sparse_, stream);
}

}  // namespace attend
