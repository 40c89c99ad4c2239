#include "tests/model/local_batches.h"

#include <algorithm>
#include <vector>

#include "attend/attention/resolver.h"
#include "attend/backends/table.h"
#include "attend/base/math.h"
#include "attend/kernels/attention/attention.h"
#include "attend/kernels/metadata/metadata.h"

namespace attend::test {
namespace {

class LocalBatches : public AttentionBackend {
 public:
  explicit LocalBatches(const BackendContext& context)
      : context_(context), inner_(find_backend(backend_table(), "cpu")->create(context)) {}

  void plan(const ForwardBatch& batch, Stream& stream) override { inner_->plan(batch, stream); }
  KvDestination destination(const AttentionLayer& layer, const ForwardBatch& batch) override {
    return inner_->destination(layer, batch);
  }
  void forward(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
               Stream& stream) override {
    if (layer.chunk == 0) return inner_->forward(layer, input, batch, stream);
    const kernels::VirtualBatches parts =
        kernels::local_attention_batches(layer.chunk, context_.config.page_size, batch.cu_seqlen_q,
                                         batch.seqlen_kv, page_table(batch), table_width());
    const auto num_parts = static_cast<int>(parts.seqlen_q.size());
    const kernels::QueryBatch queries{.cu_seqlen_q = parts.cu_seqlen_q,
                                      .seqlen_kv = parts.seqlen_kv,
                                      .max_seqlen_q = std::min(layer.chunk, batch.max_seqlen_q)};
    kernels::AttentionPlan plan({.max_reqs = num_parts,
                                 .max_tokens = batch.num_tokens,
                                 .max_kv_tokens = int64_t{num_parts} * layer.chunk,
                                 .num_q_heads = layer.num_q_heads,
                                 .num_kv_heads = layer.num_kv_heads,
                                 .head_dim_v = layer.head_dim_v},
                                {});
    const kernels::AttentionMask causal{};
    plan.plan(queries, causal, stream);
    const LayerKv kv = context_.pool.layer(layer.layer_id);
    const kernels::KvIndex index{.kind = kernels::KvIndexKind::kPageTable,
                                 .page_size = context_.config.page_size,
                                 .table = parts.page_table.data(),
                                 .table_stride = parts.pages_per_chunk};
    kernels::attention(
        {.q = input.q,
         .out = input.out,
         .lse = {},
         .kv = {.k = kv.k, .v = kv.v, .index = index, .k_scale = kv.k_scale, .v_scale = kv.v_scale},
         .batch = queries,
         .attention_mask = causal,
         .score = {.scale = layer.scale}},
        plan, stream);
  }

 private:
  int table_width() const {
    return ceil_div(context_.config.model.max_context_len, context_.config.page_size);
  }
  std::vector<int32_t> page_table(const ForwardBatch& batch) const {
    std::vector<int32_t> table;
    const int page_size = context_.config.page_size;
    for (size_t r = 0; r < batch.request_rows.size(); ++r) {
      const TensorView row = context_.request_table[batch.request_rows[r].value];
      for (int page = 0; page < table_width(); ++page)
        table.push_back(
            page * page_size < batch.seqlen_kv[r] ? row.as<int32_t>()[page * page_size] / page_size : 0);
    }
    return table;
  }

  const BackendContext context_;
  std::unique_ptr<AttentionBackend> inner_;
};

}  // namespace

const BackendEntry kLocalBatches{
    .name = "local_batches",
    .create = [](const BackendContext& context) -> std::unique_ptr<AttentionBackend> {
      return std::make_unique<LocalBatches>(context);
    }};

}  // namespace attend::test
