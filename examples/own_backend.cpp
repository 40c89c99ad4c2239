// A custom attention backend for attend's engine: own_backend <model directory> <prompt>
// It computes attention in plain loops over the pages of the KV pool; everything else is done by the engine.
#include <attend/engine/engine.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>
#include <vector>

using namespace attend;

class LoopBackend : public AttentionBackend {
 public:
  explicit LoopBackend(const BackendContext& context) : table_(context.request_table), pool_(context.pool) {
    scores_.resize(context.config.model.max_context_len);
  }

  void plan(const ForwardBatch&, Stream&) override {}

  KvDestination destination(const AttentionLayer& layer, const ForwardBatch& batch) override {
    const LayerKv kv = pool_.layer(layer.layer_id);
    return {.k = kv.k, .v = kv.v, .slots = raw(batch.out_slots)};
  }

  void forward(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
               Stream&) override {
    for (int r = 0; r < batch.num_reqs; ++r) {
      const int begin = batch.cu_seqlen_q[r], end = batch.cu_seqlen_q[r + 1];
      for (int token = begin; token < end; ++token) {
        // of the query: it attends to keys up to here
        const int position = batch.seqlen_kv[r] - (end - token);
        const int first = layer.window_left < 0 ? 0 : std::max(0, position - layer.window_left);
        for (int head = 0; head < layer.num_q_heads; ++head)
          attend_row(layer, table_[batch.request_rows[r].value].span<int32_t>(), first, position,
                     head / (layer.num_q_heads / layer.num_kv_heads), input.q[token][head].as<float>(),
                     input.out[token][head].as<float>());
      }
    }
  }

 private:
  // Computes out = softmax(scale q k^T) v over the keys first, .., last of one request.
  void attend_row(const AttentionLayer& layer, View<const int32_t> slots, int first, int last, int kv_head,
                  const float* q, float* out) {
    const LayerKv kv = pool_.layer(layer.layer_id);
    const auto row = [&](const TensorView& cache, int position) {
      const int slot = slots[static_cast<size_t>(position)];
      return cache[slot / pool_.page_size()][slot % pool_.page_size()][kv_head].as<float>();
    };
    float row_max = -INFINITY, sum = 0;
    for (int p = first; p <= last; ++p) {
      scores_[p] = layer.scale * std::inner_product(q, q + layer.head_dim_qk, row(kv.k, p), 0.0f);
      row_max = std::max(row_max, scores_[p]);
    }
    std::fill_n(out, layer.head_dim_v, 0.0f);
    for (int p = first; p <= last; ++p) {
      sum += scores_[p] = std::exp(scores_[p] - row_max);
      for (int d = 0; d < layer.head_dim_v; ++d) out[d] += scores_[p] * row(kv.v, p)[d];
    }
    for (int d = 0; d < layer.head_dim_v; ++d) out[d] /= sum;
  }

  const TensorView table_;  // request row x position -> token slot
  KvPool& pool_;
  std::vector<float> scores_;
};

int main(int argc, char** argv) try {
  if (argc != 3) return std::cerr << "usage: own_backend <model directory> <prompt>\n", 2;
  // Capabilities for the resolver. Features that are not listed are rejected before weights are loaded.
  const BackendEntry table[] = {
      {.name = "loops",
       .mha = {.prefill = {Architecture::kCpu},
               .decode = {Architecture::kCpu},
               .page_sizes = PageSizes::all(),
               .dtypes = {DType::kF32},
               .kv_dtypes = {DType::kF32},
               .kv_scales = false,
               .chunk = false,
               .logit_cap = false,
               .sinks = false,
               .cross = false,
               .bidirectional = false,
               .speculation = Speculation::kNone},
       .workspace_bytes = [](const BackendConfig&) { return size_t{0}; },
       .create = [](const BackendContext& context) -> std::unique_ptr<AttentionBackend> {
         return std::make_unique<LoopBackend>(context);
       }}};
  EngineConfig config;
  config.model_path = argv[1];
  config.backends = table;
  config.kv_cache_dtype = DType::kF32;
  Engine engine(config);
  engine.submit(std::string_view(argv[2]), {.max_new_tokens = 64});
  while (engine.step([](const RequestOutput& output) { std::cout << output.text << std::flush; })) {
  }
  std::cout << "\n";
} catch (const Error& error) {
  return std::cerr << "own_backend: " << error.what() << "\n", 2;
}
