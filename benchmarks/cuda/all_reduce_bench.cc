// Microseconds of the all-reduce that two GPUs fuse with the residual and the next norm, in CUDA graphs:
// cuda_all_reduce_bench. Limit: bytes of x over the bandwidth between the GPUs, measured with the largest x.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "attend/kernels/comm/cuda/peer_ranks.h"
#include "attend/tensor/cuda.h"

namespace {

using namespace attend;

constexpr int kRanks = 2, kOperations = 64, kReplays = 20;
constexpr int64_t kDim = 4096;

// Microseconds of one all-reduce of [rows, kDim] in bf16: the median of replays, on rank 0.
double measure(int64_t rows, bool norm) {
  const std::vector<Device> devices = {{DeviceType::kCuda, 0}, {DeviceType::kCuda, 1}};
  kernels::cuda::PeerRanks ranks(devices, static_cast<size_t>(rows * kDim * 2), std::chrono::seconds(20));
  std::barrier all(kRanks);
  std::vector<float> times;
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r)
    threads.emplace_back([&, r] {
      const Device device = devices[static_cast<size_t>(r)];
      const cuda::DeviceScope scope(device);
      cuda::OwnedStream owned(device);
      Stream& stream = owned.get();
      const Tensor x = cuda::zeros({rows, kDim}, DType::kBF16, device),
                   sum = cuda::zeros({rows, kDim}, DType::kBF16, device),
                   weight = cuda::zeros({kDim}, DType::kBF16, device),
                   squares = cuda::zeros({rows, kDim / 16}, DType::kF32, device);
      DeferredScale next;
      if (norm) next = {.weight = weight, .scaled = x, .partial_squares = squares};
      const auto queue = [&] {
        for (int i = 0; i < kOperations; ++i) ranks.communicator(r).all_reduce_add(x, sum, next, stream);
      };
      queue();
      cuda::synchronize(stream);
      cuda::Graph graph(stream, queue);
      cuda::Event begin(device), end(device);
      for (int i = 0; i < kReplays; ++i) {
        all.arrive_and_wait();
        begin.record(stream);
        graph.launch(stream);
        end.record(stream);
        end.synchronize();
        if (r == 0) times.push_back(end.milliseconds_since(begin) * 1000.0f / kOperations);
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::ranges::sort(times);
  return times[times.size() / 2];
}

}  // namespace

int main() {
  if (cuda::device_count() < kRanks) {
    std::fprintf(stderr, "cuda_all_reduce_bench: expected %d GPUs\n", kRanks);
    return 2;
  }
  const double largest = measure(8192, false);
  const double limit = 8192.0 * kDim * 2 / largest / 1e3;  // GB/s
  std::printf("bandwidth at 64 MiB: %.0f GB/s\n", limit);
  for (const int64_t rows : {1, 4, 8, 32, 64, 128, 256, 1024, 2048}) {
    const double bytes = static_cast<double>(rows) * kDim * 2;
    std::printf("%8.3f MiB  all-reduce + add %7.2f us  + deferred norm %7.2f us  limit %6.2f us\n",
                bytes / (1 << 20), measure(rows, false), measure(rows, true), bytes / limit / 1e3);
  }
}
