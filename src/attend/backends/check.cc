#include "attend/backends/check.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/kernels/kv_store/selected_rows.h"

namespace attend {

void check_layer(const AttentionLayer& layer, const KvPool& pool) {
  if (layer.kind == KvKind::kMla) {
    const int64_t latent = kernels::latent_width(pool.latent(layer.layer_id));
    const bool absorbed =
        layer.num_kv_heads == 1 && layer.head_dim_qk == latent && layer.head_dim_v + layer.rope_dim == latent;
    if (!absorbed)
      fail(ErrorCode::kUnsupported, "MLA layer ", layer.layer_id, " with ", layer.num_kv_heads,
           " KV heads and head dims ", layer.head_dim_qk, "/", layer.head_dim_v,
           ": only absorbed layers attend over the pool, with 1 KV head and ", latent, "/",
           latent - layer.rope_dim);
    return;
  }
  const LayerKv kv = pool.layer(layer.layer_id);
  require(kv.k.shape[2] == layer.num_kv_heads && kv.k.shape[3] == layer.head_dim_qk &&
              kv.v.shape[3] == layer.head_dim_v,
          "layer ", layer.layer_id, " with ", layer.num_kv_heads, " KV heads of ", layer.head_dim_qk, "/",
          layer.head_dim_v, ": the pool has ", kv.k.shape[2], " of ", kv.k.shape[3], "/", kv.v.shape[3]);
}

namespace {

void check_sizes(const ForwardBatch& batch, const BatchLimits& limits) {
  require(batch.num_reqs <= limits.max_reqs, "batch of ", batch.num_reqs, " requests: at most ",
          limits.max_reqs);
  require(batch.num_tokens <= limits.max_tokens, "batch of ", batch.num_tokens, " tokens: at most ",
          limits.max_tokens);
  const auto num_reqs = static_cast<size_t>(batch.num_reqs),
             num_tokens = static_cast<size_t>(batch.num_tokens);
  require(batch.request_rows.size() == num_reqs && batch.seqlen_kv.size() == num_reqs &&
              batch.cu_seqlen_q.size() == num_reqs + 1,
          "batch of ", num_reqs, " requests: ", batch.request_rows.size(), " rows, ", batch.seqlen_kv.size(),
          " lengths, cu_seqlen_q of ", batch.cu_seqlen_q.size());
  require(batch.out_slots.size() == num_tokens, "batch of ", num_tokens, " tokens: ", batch.out_slots.size(),
          " slots");
}

}  // namespace

void check_batch(const ForwardBatch& batch, const BackendConfig& config, const TensorView& request_table,
                 const KvPool& pool) {
  const BatchLimits& limits = config.limits;
  check_sizes(batch, limits);
  // The host does not read device arrays; their writer has checked them.
  if (config.device.type != DeviceType::kCpu) return;
  require(std::ranges::is_sorted(batch.cu_seqlen_q) && batch.cu_seqlen_q.front() == 0 &&
              batch.cu_seqlen_q.back() <= batch.num_tokens,
          "cu_seqlen_q: expected rising numbers from 0 to at most ", batch.num_tokens);
  for (const RequestRow row : batch.request_rows)
    require(row.value >= 0 && row.value < request_table.shape[0], "request row ", row, ": expected 0 to ",
            request_table.shape[0] - 1);
  int64_t num_kv_tokens = 0;
  for (const int32_t seqlen : batch.seqlen_kv) {
    require(seqlen >= 0 && seqlen <= config.model.max_context_len, "seqlen_kv ", seqlen, ": expected 0 to ",
            config.model.max_context_len);
    num_kv_tokens += seqlen;
  }
  require(num_kv_tokens <= limits.max_kv_tokens, "batch of ", num_kv_tokens, " KV tokens: at most ",
          limits.max_kv_tokens);
  for (const TokenSlot slot : batch.out_slots)
    require(slot == kNoSlot || (slot.value >= config.page_size && slot.value < pool.num_slots()), "out_slot ",
            slot, ": expected -1, or ", config.page_size, " to ", pool.num_slots() - 1);
}

}  // namespace attend
