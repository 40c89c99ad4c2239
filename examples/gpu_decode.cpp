// Paged decode on a GPU with your own K/V memory, using only attend's kernels.
//
// Three sequences decode together. Their K/V, the page table and a step's inputs are at fixed addresses in
// GPU memory. Storing, planning and attention are captured in a CUDA graph once, and the graph is replayed
// while the sequences grow. Every step is compared with the same kernels on the CPU.
#include <attend/kernels/attention/attention.h>
#include <attend/kernels/kv_store/store.h>
#include <attend/tensor/cuda.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

namespace {

using namespace attend;

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr int kNumSequences = 3;
constexpr int kFirstLengths[kNumSequences] = {1, 15, 200};
constexpr int kNumSteps = 300;
constexpr int kNumQHeads = 8, kNumKvHeads = 2, kHeadDim = 128;
constexpr int kPageSize = 16;
constexpr int kPagesPerSequence = 32;
constexpr int kNumPages = kNumSequences * kPagesPerSequence;
// Outputs are averages of values around 1, in bfloat16, which has a spacing of 2^-7 there (2^-6 above 2).
constexpr float kTolerance = 0.05f;

using Halves = std::vector<BF16>;

Halves random_halves(int count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Halves values(static_cast<size_t>(count));
  for (BF16& value : values) value = BF16(normal(random));
  return values;
}

// Returns a copy of `values` in device memory.
template <class T>
Tensor placed(const std::vector<T>& values, std::initializer_list<int64_t> shape, Device device) {
  const Tensor host = Tensor::from<T>(values, shape);
  return device.type == DeviceType::kCuda ? cuda::copy_to(host, device) : host;
}

template <class T>
void write(std::vector<T>& values, const Tensor& to, Stream& stream) {
  if (stream.device.type == DeviceType::kCpu) {
    std::copy(values.begin(), values.end(), to.as<T>());
    return;
  }
  const auto count = static_cast<int64_t>(values.size());
  cuda::copy(TensorView::contiguous(values.data(), dtype_of<T>, {count}), to, stream);
}

// K/V of the prompts. Pages are assigned in random order.
struct Prompts {
  Halves k, v;
  std::vector<int32_t> page_table = std::vector<int32_t>(kNumPages);  // [kNumSequences, kPagesPerSequence]

  explicit Prompts(std::mt19937& random)
      : k(random_halves(kNumPages * kPageSize * kNumKvHeads * kHeadDim, random)),
        v(random_halves(kNumPages * kPageSize * kNumKvHeads * kHeadDim, random)) {
    std::iota(page_table.begin(), page_table.end(), 0);
    std::shuffle(page_table.begin(), page_table.end(), random);
  }
  int32_t slot(int sequence, int position) const {
    const int page = page_table[static_cast<size_t>(sequence * kPagesPerSequence + position / kPageSize)];
    return page * kPageSize + position % kPageSize;
  }
};

// Inputs of a step: one token per sequence.
struct Step {
  Halves q, k, v;
  std::vector<int32_t> slots, lengths;

  Step(int step, const Prompts& prompts, std::mt19937& random)
      : q(random_halves(kNumSequences * kNumQHeads * kHeadDim, random)),
        k(random_halves(kNumSequences * kNumKvHeads * kHeadDim, random)),
        v(random_halves(kNumSequences * kNumKvHeads * kHeadDim, random)) {
    for (int s = 0; s < kNumSequences; ++s) {
      lengths.push_back(kFirstLengths[s] + step);
      slots.push_back(prompts.slot(s, lengths.back() - 1));
    }
  }
};

// One layer's attention on one device: its K/V, and a step's tensors at fixed addresses.
class Layer {
 public:
  Layer(const Prompts& prompts, Device device)
      : k_cache_(placed(prompts.k, {kNumPages, kPageSize, kNumKvHeads, kHeadDim}, device)),
        v_cache_(placed(prompts.v, {kNumPages, kPageSize, kNumKvHeads, kHeadDim}, device)),
        page_table_(placed(prompts.page_table, {kNumSequences, kPagesPerSequence}, device)),
        q_(placed(Halves(kNumSequences * kNumQHeads * kHeadDim), {kNumSequences, kNumQHeads, kHeadDim},
                  device)),
        k_(placed(Halves(kNumSequences * kNumKvHeads * kHeadDim), {kNumSequences, kNumKvHeads, kHeadDim},
                  device)),
        v_(placed(Halves(kNumSequences * kNumKvHeads * kHeadDim), {kNumSequences, kNumKvHeads, kHeadDim},
                  device)),
        out_(placed(Halves(kNumSequences * kNumQHeads * kHeadDim), {kNumSequences, kNumQHeads, kHeadDim},
                    device)),
        slots_(placed(std::vector<int32_t>(kNumSequences), {kNumSequences}, device)),
        lengths_(placed(std::vector<int32_t>(kNumSequences), {kNumSequences}, device)),
        cu_seqlen_q_(placed(std::vector<int32_t>{0, 1, 2, 3}, {kNumSequences + 1}, device)),
        plan_({.max_reqs = kNumSequences,
               .max_tokens = kNumSequences,
               .max_kv_tokens = kNumPages * kPageSize,
               .num_q_heads = kNumQHeads,
               .num_kv_heads = kNumKvHeads,
               .head_dim_v = kHeadDim},
              device) {}

  void take(Step& step, Stream& stream) {
    write(step.q, q_, stream);
    write(step.k, k_, stream);
    write(step.v, v_, stream);
    write(step.slots, slots_, stream);
    write(step.lengths, lengths_, stream);
  }

  // Launches kernels only, which read lengths and slots from device memory: the captured graph works for
  // every later step.
  void attend(Stream& stream) {
    kernels::store_kv(
        {.k = k_, .v = v_, .to = {.k = k_cache_, .v = v_cache_, .slots = slots_.span<int32_t>()}}, stream);
    const kernels::AttentionArgs args{.q = q_,
                                      .out = out_,
                                      .lse = {},
                                      .kv = {.k = k_cache_,
                                             .v = v_cache_,
                                             .index = {.kind = kernels::KvIndexKind::kPageTable,
                                                       .page_size = kPageSize,
                                                       .table = page_table_.as<int32_t>(),
                                                       .table_stride = kPagesPerSequence}},
                                      .batch = {.cu_seqlen_q = cu_seqlen_q_.span<int32_t>(),
                                                .seqlen_kv = lengths_.span<int32_t>(),
                                                .max_seqlen_q = 1,
                                                .max_seqlen_kv = kPagesPerSequence * kPageSize},
                                      .attention_mask = {.causal = true},
                                      .score = {.scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim))}};
    plan_.plan(args.batch, args.attention_mask, stream);  // once for all layers of a step
    kernels::attention(args, plan_, stream);
  }

  const Tensor& out() const { return out_; }

 private:
  Tensor k_cache_, v_cache_, page_table_;
  Tensor q_, k_, v_, out_;  // [kNumSequences, heads, kHeadDim]
  Tensor slots_, lengths_, cu_seqlen_q_;
  kernels::AttentionPlan plan_;
};

float largest_difference(const Tensor& a, const Tensor& b) {
  float largest = 0.0f;
  for (int64_t i = 0; i < a.view().num_elements(); ++i) {
    const float difference =
        std::abs(static_cast<float>(a.as<BF16>()[i]) - static_cast<float>(b.as<BF16>()[i]));
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  return largest;
}

}  // namespace

int main() try {
  const std::string gpu_name = cuda::device_info(kGpu).name;  // throws if there is no GPU
  std::mt19937 random(1);
  const Prompts prompts(random);
  Layer on_gpu(prompts, kGpu), on_cpu(prompts, Device{});
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  Stream cpu;
  const Tensor result = cuda::empty_pinned({kNumSequences, kNumQHeads, kHeadDim}, DType::kBF16, kGpu);

  std::optional<cuda::Graph> graph;
  float largest_error = 0.0f;
  for (int i = 0; i < kNumSteps; ++i) {
    Step step(i, prompts, random);
    on_gpu.take(step, stream);
    if (graph) {
      graph->launch(stream);
    } else {
      on_gpu.attend(stream);
      graph.emplace(stream, [&] { on_gpu.attend(stream); });  // captured with the first lengths, not run
    }
    cuda::copy(on_gpu.out(), result, stream);
    cuda::synchronize(stream);

    on_cpu.take(step, cpu);
    on_cpu.attend(cpu);
    largest_error = std::max(largest_error, largest_difference(result, on_cpu.out()));
  }
  std::cout << "gpu_decode: " << kNumSteps << " steps of " << kNumSequences << " sequences on " << gpu_name
            << ", all but the first replayed from one graph, largest difference from the CPU "
            << largest_error << "\n";
  return largest_error < kTolerance ? 0 : 1;
} catch (const attend::Error& error) {
  std::cerr << "gpu_decode: " << error.what() << "\n";
  return 2;
}
