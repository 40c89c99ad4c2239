#include "attend/bench/model/prefill_breakdown.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "attend/backends/plan_key.h"
#include "attend/base/math.h"
#include "attend/bench/model/kernel_inputs.h"
#include "attend/bench/model/recurrent_layers.h"
#include "attend/bench/timing.h"
#include "attend/kernels/attention/attention.h"
#include "attend/kernels/gemm/linear.h"
#include "attend/model/step_cost.h"

namespace attend::bench {
namespace {

constexpr float kWeightDeviation = 0.02f;

class PhaseTimer {
 public:
  PhaseTimer(const Engine& engine, int num_tokens)
      : spec_(engine.model_spec()),
        info_(engine.info().target()),
        num_tokens_(num_tokens),
        owned_stream_(info_.device),
        stream_(owned_stream_.get()) {}

  // Time of the GEMMs of every layer and of the lm_head for the last token.
  double products_us() {
    const StepCosts costs = step_costs(spec_);
    int num_rounds = std::numeric_limits<int>::max();  // minimum number of equal GEMMs over the layers
    for (const GemmShape& gemm : costs.gemms) num_rounds = std::min(num_rounds, gemm.count);
    std::vector<Product> shapes;
    for (const GemmShape& gemm : costs.gemms)
      shapes.push_back(product(num_tokens_, gemm.in_features, gemm.out_features));
    // In sequence, as in a step, since the clock drops with the time that tensor cores are busy.
    const double round_us = time_graph(stream_, kCallsPerGraph, [&](int) {
      for (size_t i = 0; i < shapes.size(); ++i)
        for (int j = 0; j < costs.gemms[i].count / num_rounds; ++j) multiply(shapes[i]);
    });
    return num_rounds * round_us + product_us(product(1, spec_.hidden_size, spec_.vocab_size, DType::kF32)) +
           experts_us();
  }

  // Time of all experts' rows together, as if they belonged to one expert.
  double experts_us() {
    std::vector<TimedExperts> timed;
    double total = 0.0;
    for (const LayerSpec& layer : spec_.layers) {
      const MoeMlpSpec* const moe = find_moe(layer.mlp);
      if (moe == nullptr) continue;
      const auto same = [&](const TimedExperts& one) {
        return one.top_k == moe->top_k && one.intermediate_size == moe->intermediate_size;
      };
      auto found = std::ranges::find_if(timed, same);
      if (found == timed.end()) {
        const int64_t num_rows = int64_t{num_tokens_} * moe->top_k;
        const Product gate_up = product(num_rows, spec_.hidden_size, 2 * moe->intermediate_size),
                      down = product(num_rows, moe->intermediate_size, spec_.hidden_size);
        const double us = time_graph(stream_, kCallsPerGraph, [&](int) {
          multiply(gate_up);
          multiply(down);
        });
        found = timed.insert(found, {moe->top_k, moe->intermediate_size, us});
      }
      total += found->us;
    }
    return total;
  }

  double recurrent_us() { return time_recurrent_layers(spec_, info_.dtype, num_tokens_, stream_); }

  // For an MLA model, time of the expanded form, in which keys and values are not cached.
  double attention_us() {
    const ModelGeometry geometry = spec_.geometry(info_.dtype, info_.kv_cache_dtype);
    const bool expands = !geometry.expanded_layers.empty();
    std::vector<TimedLayer> timed;
    double total = 0.0;
    for (const AttentionLayer& layer : expands ? geometry.expanded_layers : spec_.attention_layers()) {
      const PlanKey key = plan_key(layer);
      auto found = std::ranges::find(timed, key, &TimedLayer::key);
      if (found == timed.end()) found = timed.insert(found, {key, layer_attention_us(layer, expands)});
      total += found->us;
    }
    return total;
  }

 private:
  struct Product {
    Tensor x, weight, out;
  };
  struct TimedExperts {
    int top_k, intermediate_size;
    double us;
  };
  struct TimedLayer {
    PlanKey key;
    double us;
  };

  Tensor random(std::initializer_list<int64_t> shape, DType dtype, float deviation) {
    return random_input(shape, dtype, deviation, stream_);
  }

  Product product(int64_t num_rows, int64_t in_features, int64_t out_features,
                  std::optional<DType> out = {}) {
    return {.x = random({num_rows, in_features}, info_.dtype, 1.0f),
            .weight = random({out_features, in_features}, info_.dtype, kWeightDeviation),
            .out = cuda::empty({num_rows, out_features}, out.value_or(info_.dtype), info_.device)};
  }

  void multiply(const Product& one) {
    kernels::linear({.x = one.x, .weight = one.weight, .bias = {}, .out = one.out}, stream_);
  }
  double product_us(const Product& one) {
    return time_graph(stream_, kCallsPerGraph, [&](int) { multiply(one); });
  }

  // fp8 elements are the bytes of random 16-bit values.
  Tensor cache(int64_t num_elements, DType dtype) {
    if (size_of(dtype) == 1) return random({ceil_div(num_elements, int64_t{2})}, DType::kBF16, 1.0f);
    return random({num_elements}, dtype, 1.0f);
  }

  Tensor upload(const std::vector<int32_t>& values) { return upload_input(values, info_.device); }

  // Attention over consecutive pages, or over `contiguous` keys in the activations' dtype.
  double layer_attention_us(const AttentionLayer& layer, bool contiguous) {
    const int page_size = contiguous ? 1 : info_.resolution.page_size;
    const DType dtype = contiguous ? info_.dtype : info_.kv_cache_dtype;
    const int64_t num_pages = ceil_div(num_tokens_, page_size), num_keys = num_pages * page_size;
    std::vector<int32_t> page_ids(static_cast<size_t>(num_pages));
    std::iota(page_ids.begin(), page_ids.end(), 0);
    const Tensor table = upload(page_ids), cu_seqlen_q = upload({0, num_tokens_}),
                 seqlen_kv = upload({num_tokens_});
    const Tensor k = cache(num_keys * layer.num_kv_heads * layer.head_dim_qk, dtype);
    const Tensor v = cache(num_keys * layer.num_kv_heads * layer.head_dim_v, dtype);
    const auto paged = [&](const Tensor& memory, int64_t head_dim) {
      return TensorView::contiguous(memory.view().data, dtype,
                                    {num_pages, page_size, layer.num_kv_heads, head_dim}, info_.device);
    };
    const Tensor q = random({num_tokens_, layer.num_q_heads, layer.head_dim_qk}, info_.dtype, 1.0f);
    const Tensor out =
        cuda::empty({num_tokens_, layer.num_q_heads, layer.head_dim_v}, info_.dtype, info_.device);

    kernels::AttentionArgs args;
    args.q = q;
    args.out = out;
    args.kv.k = paged(k, layer.head_dim_qk);
    args.kv.v = paged(v, layer.head_dim_v);
    args.kv.index = {.kind = kernels::KvIndexKind::kPageTable,
                     .page_size = page_size,
                     .table = table.as<int32_t>(),
                     .table_stride = num_pages};
    if (contiguous)
      args.kv.index = {
          .kind = kernels::KvIndexKind::kContiguous, .page_size = 1, .indptr = cu_seqlen_q.as<int32_t>()};
    args.batch.cu_seqlen_q = cu_seqlen_q.span<int32_t>();
    args.batch.seqlen_kv = seqlen_kv.span<int32_t>();
    args.batch.max_seqlen_q = num_tokens_;
    args.attention_mask = layer.attention_mask();
    args.score.scale = layer.scale;
    kernels::AttentionPlan plan({.max_reqs = 1,
                                 .max_tokens = num_tokens_,
                                 .max_kv_tokens = num_tokens_,
                                 .num_q_heads = layer.num_q_heads,
                                 .num_kv_heads = layer.num_kv_heads,
                                 .head_dim_v = layer.head_dim_v},
                                info_.device);
    plan.plan(args.batch, args.attention_mask, stream_);
    return time_graph(stream_, kCallsPerGraph, [&](int) { kernels::attention(args, plan, stream_); });
  }

  const ModelSpec& spec_;
  const ExecutorInfo& info_;
  int num_tokens_;
  cuda::OwnedStream owned_stream_;
  Stream& stream_;
};

}  // namespace

PrefillBreakdown time_prefill_breakdown(const Engine& engine, int num_tokens) {
  PhaseTimer timer(engine, num_tokens);
  return {.products_us = timer.products_us(),
          .attention_us = timer.attention_us(),
          .recurrent_us = timer.recurrent_us()};
}

}  // namespace attend::bench
