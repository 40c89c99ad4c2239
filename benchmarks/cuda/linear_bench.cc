// Times dense layers on the GPU: each shape and number of rows compared with reading its weights at the
// fastest rate measured in this run, and with cuBLASLt plus separate kernels for norms and SiLU. Weights
// rotate through a pool larger than L2, like the layers of a model.
//
//   cuda_linear_bench [ROWS...]
#include <cstdio>
#include <vector>

#include "attend/bench/cuda/gpu_probes.h"
#include "attend/bench/timing.h"
#include "attend/kernels/common/fill_random.h"
#include "attend/kernels/gemm/cuda/matmul.h"
#include "attend/kernels/gemm/linear.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "benchmarks/cuda/counts.h"

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

struct LayerShape {
  const char* name;
  int64_t hidden, qkv, attended, intermediate;
};
constexpr LayerShape kLayers[] = {{"8B layer", 4096, 6144, 4096, 14336},
                                  {"0.6B layer", 1024, 4096, 2048, 3072}};

enum class Kernels { kAttend, kCublasLt };

void multiply(Kernels kernels, const kernels::LinearArgs& args, Stream& stream) {
  if (kernels == Kernels::kAttend) {
    kernels::linear(args, stream);
    return;
  }
  TensorView x = args.x;
  if (!args.norm.weight.empty()) {
    kernels::rms_norm(x, args.norm.weight, args.norm.eps, args.norm.normalized, stream);
    x = args.norm.normalized;
  }
  kernels::cuda::matmul(x, args.weight.data, args.out, args.accumulate, stream);
}

void multiply_gated(Kernels kernels, const kernels::GatedLinearArgs& args, Stream& stream) {
  if (kernels == Kernels::kAttend) return kernels::gated_linear(args, stream);
  multiply(kernels, {.x = args.x, .weight = args.weight, .bias = {}, .out = args.gate_up, .norm = args.norm},
           stream);
  kernels::silu_mul(args.gate_up, args.out, stream);
}

// Returns the microseconds of a layer's GEMMs in sequence, with its norms and sums.
double time_layer(Kernels kernels, const LayerShape& shape, int64_t num_rows, const Tensor& pool,
                  Stream& stream) {
  int64_t used = 0;
  const auto take = [&](int64_t rows, int64_t columns) {
    if (used + rows * columns > pool.view().num_elements()) used = 0;
    const int64_t first = used;
    used += rows * columns;
    return pool.view().slice(0, first, used).reshape({rows, columns});
  };
  const auto made = [&](int64_t columns) {
    Tensor tensor = cuda::empty({num_rows, columns}, DType::kBF16, kGpu);
    kernels::fill_random(tensor, {.deviation = 0.5f}, stream);
    return tensor;
  };
  const Tensor residual = made(shape.hidden), x = made(shape.hidden), qkv = made(shape.qkv),
               attended = made(shape.attended), gate_up = made(2 * shape.intermediate),
               mlp = made(shape.intermediate);
  const Tensor partial_squares =
      cuda::empty({num_rows, shape.hidden / kernels::kPartialSquaresWidth}, DType::kF32, kGpu);
  // Norm of the residual that its next GEMM applies.
  const auto next_norm = [&] {
    return kernels::InputNorm{.weight = take(1, shape.hidden).reshape({shape.hidden}),
                              .eps = 1e-5f,
                              .normalized = x,
                              .partial_squares = partial_squares};
  };
  kernels::InputNorm norm = next_norm();
  const auto add = [&](const Tensor& from, int64_t in_features) {
    norm = next_norm();
    multiply(kernels,
             {.x = from,
              .weight = take(shape.hidden, in_features),
              .bias = {},
              .out = residual,
              .accumulate = true,
              .next_norm = &norm},
             stream);
  };
  return time_graph(stream, 16, [&](int) {
    multiply(kernels,
             {.x = residual, .weight = take(shape.qkv, shape.hidden), .bias = {}, .out = qkv, .norm = norm},
             stream);
    add(attended, shape.attended);
    multiply_gated(kernels,
                   {.x = residual,
                    .weight = take(2 * shape.intermediate, shape.hidden),
                    .bias = {},
                    .gate_up = gate_up,
                    .out = mlp,
                    .norm = norm},
                   stream);
    add(mlp, shape.intermediate);
  });
}

// Returns the microseconds of a GEMM whose weight is another part of the pool in each call.
double time_product(Kernels kernels, const Shape& shape, int64_t num_rows, const Tensor& pool,
                    const Tensor& x, const Tensor& out, Stream& stream) {
  const int64_t num_elements = shape.out_features * shape.in_features;
  const int64_t num_copies = pool.view().num_elements() / num_elements;
  return time_graph(stream, 40, [&](int i) {
    const int64_t first = i % num_copies * num_elements;
    multiply(
        kernels,
        {.x = x.view().slice(0, 0, num_rows).slice(1, 0, shape.in_features),
         .weight = pool.view()
                       .slice(0, first, first + num_elements)
                       .reshape({shape.out_features, shape.in_features}),
         .bias = {},
         .out =
             out.view().slice(0, 0, num_rows * shape.out_features).reshape({num_rows, shape.out_features})},
        stream);
  });
}

// Prints one line: for each number of rows the time, its percentage of the limit, and cuBLASLt's time.
template <class Time>
void print_line(const char* name, const std::vector<int64_t>& row_counts, double limit, const Time& time) {
  std::printf("%-12s reading %6.1f us", name, limit);
  for (const int64_t num_rows : row_counts) {
    const double ours = time(Kernels::kAttend, num_rows);
    std::printf(" | %3d rows %6.1f us %4.1f %%, cuBLASLt %6.1f", static_cast<int>(num_rows), ours,
                100.0 * limit / ours, time(Kernels::kCublasLt, num_rows));
  }
  std::printf("\n");
  std::fflush(stdout);
}

int main(const std::vector<int64_t>& row_counts) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  const double read_rate = fastest_read(stream);
  std::printf("fastest read %.0f GB/s\n", read_rate * 1e-3);
  const Tensor pool = cuda::empty({kPoolBytes / 2}, DType::kBF16, kGpu);
  kernels::fill_random(pool, {.deviation = 0.03f}, stream);
  const Tensor x = cuda::empty({256, 14336}, DType::kBF16, kGpu);
  kernels::fill_random(x, {.deviation = 0.5f}, stream);
  const Tensor out = cuda::empty({256 * 151936}, DType::kBF16, kGpu);
  for (const Shape& shape : kShapes)
    print_line(shape.name, row_counts,
               2.0 * static_cast<double>(shape.out_features * shape.in_features) / read_rate,
               [&](Kernels kernels, int64_t num_rows) {
                 return time_product(kernels, shape, num_rows, pool, x, out, stream);
               });
  for (const LayerShape& shape : kLayers)
    print_line(shape.name, row_counts,
               2.0 *
                   static_cast<double>(shape.hidden * (shape.qkv + shape.attended + 3 * shape.intermediate)) /
                   read_rate,
               [&](Kernels kernels, int64_t num_rows) {
                 return time_layer(kernels, shape, num_rows, pool, stream);
               });
  return 0;
}

}  // namespace
}  // namespace attend::bench

int main(int argc, char** argv) {
  return attend::bench::main(attend::bench::parse_counts(argc, argv, {1, 8, 16, 32, 64, 128, 256}));
}
