// Times mixture-of-experts layers on the GPU, with tokens that choose experts uniformly and independently.
// The time is compared with reading the used experts at the fastest rate measured in this run, or with the
// same operations as dense GEMMs. The weights of layers rotate through a pool of at least two layers, larger
// than L2.
//
//   cuda_moe_bench [TOKENS...]
#include <algorithm>
#include <cstdio>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "attend/bench/cuda/gpu_probes.h"
#include "attend/bench/timing.h"
#include "attend/kernels/common/fill_random.h"
#include "attend/kernels/gemm/linear.h"
#include "attend/kernels/moe/experts.h"
#include "benchmarks/cuda/counts.h"

namespace attend::bench {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0};

struct Shape {
  const char* name;
  kernels::MoeShape moe;
  bool mxfp4 = false;
};
constexpr Shape kShapes[] = {
    {"Qwen3-30B-A3B", {.num_experts = 128, .top_k = 8, .hidden_size = 2048, .intermediate_size = 768}},
    {"DeepSeek-V2-Lite", {.num_experts = 64, .top_k = 6, .hidden_size = 2048, .intermediate_size = 1408}},
    {"gpt-oss-20b",
     {.num_experts = 32, .top_k = 4, .hidden_size = 2880, .intermediate_size = 2880},
     /*mxfp4=*/true}};
constexpr int kLayers = 4;

Tensor random(std::initializer_list<int64_t> shape, float deviation, Stream& stream) {
  Tensor tensor = cuda::empty(shape, DType::kBF16, kGpu);
  kernels::fill_random(tensor, {.deviation = deviation}, stream);
  return tensor;
}

// Experts of a layer: the choices, and the weights of several layers.
class Layers {
 public:
  Layers(const kernels::MoeShape& shape, bool mxfp4, Stream& stream)
      : shape_(shape), mxfp4_(mxfp4), stream_(stream) {
    for (int i = 0; i < kLayers; ++i) {
      gate_ups_.push_back(weight(shape.num_experts * 2 * shape.intermediate_size, shape.hidden_size));
      downs_.push_back(weight(shape.num_experts * shape.hidden_size, shape.intermediate_size));
    }
  }

  void choose(int64_t num_tokens) {
    num_tokens_ = num_tokens;
    logits_ = cuda::empty({num_tokens, shape_.num_experts}, DType::kF32, kGpu);
    kernels::fill_random(logits_, {.deviation = 1.0f}, stream_);
    x_ = random({num_tokens, shape_.hidden_size}, 0.5f, stream_);
    out_ = random({num_tokens, shape_.hidden_size}, 0.5f, stream_);
    scratch_bytes_ = kernels::experts_scratch_bytes(shape_, num_tokens, DType::kBF16);
    scratch_ = cuda::empty({static_cast<int64_t>(scratch_bytes_)}, DType::kU8, kGpu);
    experts_.clear();
    weights_.clear();
    num_touched_ = 0;
    for (int i = 0; i < kLayers; ++i) {
      experts_.push_back(cuda::empty({num_tokens, shape_.top_k}, DType::kI32, kGpu));
      weights_.push_back(cuda::empty({num_tokens, shape_.top_k}, DType::kF32, kGpu));
      route(i);
      const Tensor host = Tensor::empty({num_tokens, shape_.top_k}, DType::kI32);
      cuda::copy(experts_.back(), host, stream_);
      cuda::synchronize(stream_);
      const auto chosen = host.span<int32_t>();
      num_touched_ += static_cast<double>(std::set<int32_t>(chosen.begin(), chosen.end()).size()) / kLayers;
    }
  }

  void route(int i) {
    const auto at = static_cast<size_t>(i % kLayers);
    kernels::route({.logits = logits_,
                    .rule = {.spread = static_cast<uint32_t>(at) + 1},
                    .experts = experts_[at],
                    .weights = weights_[at]},
                   stream_);
  }

  void compute(int i, bool batch_invariant) {
    const auto at = static_cast<size_t>(i % kLayers);
    const Linear gate_up{.weight = gate_ups_[at]}, down{.weight = downs_[at]};
    kernels::moe_experts({.shape = shape_,
                          .x = x_,
                          .experts = experts_[at],
                          .weights = weights_[at],
                          .linears = {.gate_up = {&gate_up, 1}, .down = {&down, 1}},
                          .gate = gate(),
                          .out = out_,
                          .accumulate = true,
                          .scratch = {static_cast<std::byte*>(scratch_.view().data), scratch_bytes_},
                          .batch_invariant = batch_invariant},
                         stream_);
  }

  double num_touched() const { return num_touched_; }
  double touched_bytes() const {
    const double bytes = mxfp4_ ? 0.5 + 1.0 / 32 : 2.0;
    return num_touched_ * bytes * 3.0 * static_cast<double>(shape_.hidden_size * shape_.intermediate_size);
  }
  double operations() const {
    return 2.0 * 3.0 *
           static_cast<double>(shape_.hidden_size * shape_.intermediate_size * num_tokens_ * shape_.top_k);
  }
  // Returns the time of the same number of operations with one expert.
  double dense_us() {
    const int64_t rows = num_tokens_ * shape_.top_k;
    const Tensor x = random({rows, shape_.hidden_size}, 0.5f, stream_),
                 inner = random({rows, shape_.intermediate_size}, 0.5f, stream_),
                 gate_up_out = random({rows, 2 * shape_.intermediate_size}, 0.5f, stream_),
                 out = random({rows, shape_.hidden_size}, 0.5f, stream_);
    const Tensor gate_up = random({2 * shape_.intermediate_size, shape_.hidden_size}, 0.02f, stream_),
                 down = random({shape_.hidden_size, shape_.intermediate_size}, 0.02f, stream_);
    return time_graph(stream_, 8, [&](int) {
      kernels::linear({.x = x, .weight = gate_up, .bias = {}, .out = gate_up_out}, stream_);
      kernels::linear({.x = inner, .weight = down, .bias = {}, .out = out}, stream_);
    });
  }

 private:
  Weight weight(int64_t rows, int64_t columns) {
    if (!mxfp4_) return keep(random({rows, columns}, 0.02f, stream_));
    constexpr int64_t kInputsOfScale = 32;
    constexpr uint8_t kExponent = 120;  // 2^-7
    Weight made;
    made.format = WeightFormat::kMxFp4;
    made.group_outs = 1;
    made.group_ins = kInputsOfScale;
    // Random bits serve as quantized values.
    made.data = TensorView::contiguous(keep(random({rows, columns / 4}, 1.0f, stream_)).data, DType::kU8,
                                       {rows, columns / 2}, kGpu);
    const Tensor scales = Tensor::empty({rows, columns / kInputsOfScale}, DType::kU8);
    std::ranges::fill(scales.span<uint8_t>(), kExponent);
    made.scales = keep(cuda::copy_to(scales, kGpu));
    return made;
  }
  TensorView keep(Tensor tensor) { return kept_.emplace_back(std::move(tensor)).view(); }
  kernels::ExpertGate gate() const {
    if (!mxfp4_) return {};
    return {.activation = kernels::ExpertActivation::kClampedSwiglu, .limit = 7.0f, .alpha = 1.702f};
  }

  const kernels::MoeShape shape_;
  const bool mxfp4_;
  Stream& stream_;
  std::deque<Tensor> kept_;
  std::vector<Weight> gate_ups_, downs_;
  std::vector<Tensor> experts_, weights_;
  Tensor logits_, x_, out_, scratch_;
  size_t scratch_bytes_ = 0;
  int64_t num_tokens_ = 0;
  double num_touched_ = 0.0;
};

int main(const std::vector<int64_t>& token_counts) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  const double read_rate = fastest_read(stream);
  std::printf("fastest read %.0f GB/s\n", read_rate * 1e-3);
  for (const Shape& shape : kShapes) {
    Layers layers(shape.moe, shape.mxfp4, stream);
    for (const int64_t num_tokens : token_counts) {
      layers.choose(num_tokens);
      const double limit = layers.touched_bytes() / read_rate;
      const int repeats = num_tokens > 1024 ? 8 : 16;
      const double us = time_graph(stream, repeats, [&](int i) { layers.compute(i, false); });
      const double invariant_us = time_graph(stream, repeats, [&](int i) { layers.compute(i, true); });
      std::printf(
          "%-16s %5d tokens, %5.1f experts: reading %7.1f us | %8.1f us %5.1f %% | invariant %8.1f us",
          shape.name, static_cast<int>(num_tokens), layers.num_touched(), limit, us, 100.0 * limit / us,
          invariant_us);
      if (num_tokens >= 256)
        std::printf(" | %4.0f TFLOP/s, dense %8.1f us", layers.operations() / us * 1e-6, layers.dense_us());
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace attend::bench

int main(int argc, char** argv) {
  return attend::bench::main(
      attend::bench::parse_counts(argc, argv, {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048, 8192}));
}
