// Times dense layers on the GPU: each shape and number of rows beside reading its weights at the fastest read
// seen in this run. Weights rotate through a pool larger than L2, as a model's layers do.
#include <cstdio>

#include "attend/kernels/linear.h"
#include "benchmarks/cuda/gpu_timing.h"

namespace attend::bench {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr int64_t kPoolBytes = int64_t{2} << 30;

struct Shape {
  const char* name;
  int64_t out_features, in_features;
};
constexpr Shape kShapes[] = {{"8B qkv", 6144, 4096},      {"8B o", 4096, 4096},
                             {"8B gate_up", 28672, 4096}, {"8B down", 4096, 14336},
                             {"8B head", 128256, 4096},   {"0.6B qkv", 4096, 1024},
                             {"0.6B o", 1024, 2048},      {"0.6B gate_up", 6144, 1024},
                             {"0.6B down", 1024, 3072},   {"0.6B head", 151936, 1024}};

int main() {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  const double read_rate = fastest_read(stream);
  std::printf("fastest read %.0f GB/s\n", read_rate * 1e-3);
  const Tensor pool = cuda::zeros({kPoolBytes / 2}, DType::kBF16, kGpu);
  const Tensor x = cuda::zeros({256, 14336}, DType::kBF16, kGpu);
  const Tensor out = cuda::empty({256 * 151936}, DType::kBF16, kGpu);
  for (const Shape& shape : kShapes) {
    const int64_t num_elements = shape.out_features * shape.in_features;
    const int64_t num_copies = pool.view().num_elements() / num_elements;
    std::printf("%-12s", shape.name);
    for (const int64_t num_rows : {1, 8, 16, 32, 128}) {
      const double microseconds = time_graph(stream, 40, [&](int i) {
        const int64_t first = i % num_copies * num_elements;
        kernels::linear({.x = x.view().slice(0, 0, num_rows).slice(1, 0, shape.in_features),
                         .weight = pool.view()
                                       .slice(0, first, first + num_elements)
                                       .reshape({shape.out_features, shape.in_features}),
                         .bias = {},
                         .out = out.view()
                                    .slice(0, 0, num_rows * shape.out_features)
                                    .reshape({num_rows, shape.out_features})},
                        stream);
      });
      const double limit = 2.0 * static_cast<double>(num_elements) / read_rate;
      std::printf("  %3d rows %7.1f us %5.1f %%", static_cast<int>(num_rows), microseconds,
                  100.0 * limit / microseconds);
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace
}  // namespace attend::bench

int main() { return attend::bench::main(); }
