// Times sampling on the GPU: microseconds by rows and filters, for logits of the 8B shape's vocabulary,
// compared with reading them once at the fastest rate measured in this run. Logits rotate through a pool
// larger than L2.
#include <cstdio>
#include <vector>

#include "attend/bench/cuda/gpu_probes.h"
#include "attend/bench/timing.h"
#include "attend/kernels/common/fill_random.h"
#include "attend/kernels/sampling/sampling.h"

namespace attend::bench {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr int64_t kVocabSize = 128256, kPoolRows = 512;

struct Filter {
  const char* name;
  kernels::SamplingRule rule;
};
constexpr Filter kFilters[] = {{"greedy", {.temperature = 0.0f}},
                               {"temperature", {}},
                               {"top_k 50", {.top_k = 50}},
                               {"top_p 0.9", {.top_p = 0.9f}},
                               {"top_k 50, top_p 0.9", {.top_k = 50, .top_p = 0.9f}}};

int main() {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  const double read_rate = fastest_read(stream);
  const Tensor logits = cuda::empty({kPoolRows, kVocabSize}, DType::kF32, kGpu);
  kernels::fill_random(logits, {.deviation = 2.5f}, stream);
  const Tensor ids = cuda::empty({kPoolRows}, DType::kI32, kGpu);
  std::printf("fastest read %.0f GB/s\n%-22s", read_rate * 1e-3, "rows");
  for (const int64_t num_rows : {1, 8, 32, 128, 256}) std::printf(" %7d", static_cast<int>(num_rows));
  std::printf("\n%-22s", "reading only");
  for (const int64_t num_rows : {1, 8, 32, 128, 256})
    std::printf(" %7.1f", static_cast<double>(num_rows * kVocabSize * 4) / read_rate);
  for (const Filter& filter : kFilters) {
    const std::vector<kernels::SamplingRule> all(kPoolRows, filter.rule);
    const auto* bytes = reinterpret_cast<const uint8_t*>(all.data());
    const Tensor rules = cuda::copy_to(
        TensorView::contiguous(const_cast<uint8_t*>(bytes), DType::kU8,
                               {static_cast<int64_t>(all.size() * sizeof(kernels::SamplingRule))}),
        kGpu);
    std::printf("\n%-22s", filter.name);
    for (const int64_t num_rows : {1, 8, 32, 128, 256}) {
      const auto count = static_cast<size_t>(num_rows);
      const double us = time_graph(stream, 64, [&](int i) {
        const int64_t first = i * num_rows % kPoolRows;
        kernels::sample(logits.view().slice(0, first, first + num_rows),
                        {static_cast<const kernels::SamplingRule*>(rules.view().data), count},
                        ids.span<int32_t>().first(count), stream);
      });
      std::printf(" %7.1f", us);
    }
  }
  std::printf("\n");
  return 0;
}

}  // namespace
}  // namespace attend::bench

int main() { return attend::bench::main(); }
