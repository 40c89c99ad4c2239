// Times GEMMs with quantized weights on the GPU with each kernel that supports them: the shapes of
// Llama-3.1-8B, compared with bf16 and with reading the quantized weight at the fastest rate measured in this
// run. Weights rotate through a pool larger than L2, like the layers of a model.
//
//   cuda_quantized_linear_bench [ROWS...]
#include <cstdio>
#include <vector>

#include "attend/bench/cuda/gpu_probes.h"
#include "attend/bench/timing.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/common/fill_random.h"
#include "attend/kernels/gemm/cuda/linear.h"
#include "attend/kernels/gemm/cuda/sm80/skinny_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.h"
#include "benchmarks/cuda/counts.h"

namespace attend::bench {
namespace {

using kernels::LinearArgs;
using kernels::cuda::GemmKernel;

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr int64_t kPoolBytes = int64_t{1} << 30, kMaxRows = 8192, kMaxInFeatures = 14336;
// Above this number of rows, kernels that read W once per few rows are slow.
constexpr int64_t kMaxQuantizedRows = 512;

struct Shape {
  const char* name;
  int64_t out_features, in_features;
};
constexpr Shape kShapes[] = {
    {"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate_up", 28672, 4096}, {"down", 4096, 14336}};

struct Format {
  const char* name;
  WeightFormat format;
  int64_t group_outs, group_ins;  // 0: all
};
constexpr Format kFormats[] = {{"bf16", WeightFormat::kPlain, 0, 0},
                               {"int4", WeightFormat::kInt4, 1, 128},
                               {"fp8", WeightFormat::kFp8, 1, 0},
                               {"int8", WeightFormat::kInt8, 1, 0},
                               {"fp8 blocks", WeightFormat::kFp8, 128, 128}};

struct Candidate {
  const char* name;
  GemmKernel kernel;
  void (*launch)(const LinearArgs& args, Stream& stream);
};
constexpr Candidate kCandidates[] = {
    {"skinny", GemmKernel::kSkinnyQuantized,
     [](const LinearArgs& args, Stream& stream) {
       kernels::cuda::sm80::launch_skinny_quantized(kernels::cuda::sm80::skinny_quantized_params(args, false),
                                                    args.x.dtype, stream.handle);
     }},
    {"scaled", GemmKernel::kScaledQuantized,
     [](const LinearArgs& args, Stream& stream) {
       kernels::cuda::sm90::scaled_quantized_gemm(args, false, stream);
     }},
    {"swap-AB", GemmKernel::kSwapAbQuantized,
     [](const LinearArgs& args, Stream& stream) { kernels::cuda::sm90::swap_ab_gemm(args, false, stream); }},
    {"fp8 by fp8", GemmKernel::kFp8, kernels::cuda::fp8_linear},
    {"fp8 blocks", GemmKernel::kFp8Blocks, kernels::cuda::fp8_block_linear},
    {"quantized", GemmKernel::kQuantized, kernels::cuda::quantized_linear},
    {"widened", GemmKernel::kDequantizeThenGemm, kernels::cuda::dequantize_then_linear}};

// Weight with quantized values at `codes`, which must be large enough.
Weight weight_at(const TensorView& codes, const Format& format, const Shape& shape,
                 const TensorView& scales) {
  const auto view = [&](DType dtype, int64_t rows, int64_t columns, void* data) {
    return TensorView::contiguous(data, dtype, {rows, columns}, kGpu);
  };
  if (format.format == WeightFormat::kPlain)
    return Weight(view(DType::kBF16, shape.out_features, shape.in_features, codes.data));
  const bool int4 = format.format == WeightFormat::kInt4;
  const DType dtype = int4 ? DType::kU8 : format.format == WeightFormat::kInt8 ? DType::kI8 : DType::kF8E4M3;
  Weight weight(
      view(dtype, shape.out_features, int4 ? shape.in_features / 2 : shape.in_features, codes.data));
  weight.format = format.format;
  weight.group_outs = format.group_outs;
  weight.group_ins = format.group_ins == 0 ? shape.in_features : format.group_ins;
  weight.scales = view(int4 ? DType::kBF16 : DType::kF32, (shape.out_features - 1) / weight.group_outs + 1,
                       shape.in_features / weight.group_ins, scales.data);
  return weight;
}

int main(const std::vector<int64_t>& row_counts) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  const double read_rate = fastest_read(stream);
  std::printf("fastest read %.0f GB/s; us, and per cent of reading the weight\n", read_rate * 1e-3);
  const auto random = [&](int64_t count, DType dtype, float deviation) {
    Tensor tensor = cuda::empty({count}, dtype, kGpu);
    kernels::fill_random(tensor, {.deviation = deviation}, stream);
    return tensor;
  };
  const Tensor pool = random(kPoolBytes / 2, DType::kBF16, 0.03f);
  const Tensor scales = random(int64_t{1} << 22, DType::kF32, 0.01f);
  const Tensor x = random(kMaxRows * kMaxInFeatures, DType::kBF16, 0.5f);
  const Tensor out = random(kMaxRows * 28672, DType::kBF16, 1.0f);
  const Tensor workspace = cuda::empty({static_cast<int64_t>(kernels::linear_workspace_bytes(
                                           kMaxRows, kMaxInFeatures, kGpu, WeightFormat::kInt4))},
                                       DType::kU8, kGpu);
  for (const Shape& shape : kShapes)
    for (const Format& format : kFormats) {
      const size_t num_bytes = weight_at(pool, format, shape, scales).num_bytes();
      const double reading = static_cast<double>(num_bytes) / read_rate;
      // Each copy starts at a multiple of 256 elements of 16 bits.
      const int64_t stride = static_cast<int64_t>(num_bytes / 512 + 1) * 256;
      const int64_t num_copies = pool.view().num_elements() / stride;
      std::printf("%-8s %-10s reading %5.1f", shape.name, format.name, reading);
      for (const int64_t num_rows : row_counts) {
        std::printf(" | %3d:", static_cast<int>(num_rows));
        const auto args = [&](int i) {
          const int64_t first = i % num_copies * stride;
          return LinearArgs{
              .x = TensorView::contiguous(x.view().data, DType::kBF16, {num_rows, shape.in_features}, kGpu),
              .weight = weight_at(pool.view().slice(0, first, first + stride), format, shape, scales),
              .bias = {},
              .out =
                  TensorView::contiguous(out.view().data, DType::kBF16, {num_rows, shape.out_features}, kGpu),
              .workspace = {static_cast<std::byte*>(workspace.view().data), workspace.view().num_bytes()},
              .rounds_x = true};
        };
        const auto print = [&](const char* name, const auto& launch) {
          const double us = time_graph(stream, 24, [&](int i) { launch(args(i)); });
          std::printf(" %s%s%.1f %.0f%%", name, *name == 0 ? "" : " ", us, 100.0 * reading / us);
        };
        if (format.format == WeightFormat::kPlain) {
          print("", [&](LinearArgs plain) {
            plain.workspace = {};
            kernels::linear(plain, stream);
          });
          continue;
        }
        const kernels::cuda::GemmProblem problem = kernels::cuda::gemm_problem(args(0), /*gated=*/false);
        for (const Candidate& candidate : kCandidates)
          if ((num_rows <= kMaxQuantizedRows || candidate.kernel == GemmKernel::kFp8 ||
               candidate.kernel == GemmKernel::kFp8Blocks ||
               candidate.kernel == GemmKernel::kDequantizeThenGemm) &&
              kernels::cuda::gemm_row(candidate.kernel).supports(problem, kernels::cuda::gpu_facts(kGpu)))
            print(candidate.name, [&](const LinearArgs& product) { candidate.launch(product, stream); });
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  return 0;
}

}  // namespace
}  // namespace attend::bench

int main(int argc, char** argv) {
  return attend::bench::main(attend::bench::parse_counts(argc, argv, {1, 8, 32, 64, 128, 256}));
}
