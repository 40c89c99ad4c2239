// Which kernel multiplies a dense layer on a GPU: the table of candidates, and the choice among them. Pure:
// for any GPU, on any machine.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "attend/kernels/common/gpu_facts.h"
#include "attend/tensor/dtype.h"
#include "attend/tensor/weight.h"

namespace attend::kernels::cuda {

enum class GemmKernel : uint8_t {
  kGatedMlp,            // sm90/gated_mlp/
  kSwapAbSplitK,        // sm90/swap_ab/
  kSkinnyQuantized,     // sm80/skinny_gemm.h, of quantized weights
  kFp8,                 // fp8_linear.cc
  kFp8Blocks,           // fp8_linear.cc, of blocks
  kScaledQuantized,     // sm90/swap_ab/, of int4 whose factors are scaled, fp8 whose rows are
  kSwapAbQuantized,     // sm90/swap_ab/, of quantized weights
  kGemv,                // sm90/gemv/
  kSkinny,              // sm80/skinny_gemm.h
  kInvariantSm90,       // sm90/batch_invariant/
  kInvariantSm80,       // common/batch_invariant_gemm_kernel.h
  kQuantized,           // sm80/quantized_gemm_kernel.h
  kDequantizeThenGemm,  // quantized_linear.cc
  kCublasLt,            // matmul.h
  kNaive,               // common/batch_invariant_gemm_kernel.h
  kGemmThenSilu,        // no kernel for gate, up and SiLU together: another choice, and then silu_mul()
};
inline constexpr int kNumGemmKernels = 16;

// RMSNorm of x before the product (InputNorm of linear.h).
enum class GemmNorm : uint8_t {
  kNone,
  kInline,
  kDeferred,  // by the product before
};

// What a choice depends on. "Aligned": rows begin at multiples of 16 bytes.
struct GemmProblem {
  int64_t num_rows = 0, in_features = 0;
  int64_t out_features = 0;    // of out; `gated`: the weight has twice as many rows
  DType dtype = DType::kBF16;  // of x, and of a plain weight
  DType out_dtype = DType::kBF16;
  bool gated = false;  // out = silu(gate) * up
  bool batch_invariant = false;
  bool x_aligned = true, weight_aligned = true;
  bool out_aligned_8 = true;  // rows of out begin at multiples of 8 bytes
  GemmNorm norm = GemmNorm::kNone;
  DType norm_dtype = DType::kBF16;  // of the norm's weight, which lies at a multiple of 16 bytes or not
  bool norm_aligned = true;
  bool normalized_aligned = true;  // the memory for x behind a norm that runs in a launch before
  WeightFormat format = WeightFormat::kPlain;
  int64_t group_outs = 1, group_ins = 0;  // of a quantized weight: outputs and inputs that share a scale
  DType scale_dtype = DType::kBF16;
  bool has_zeros = false;
  bool scales_aligned = true;  // scales and zeros begin at multiples of 4 bytes
  bool reorders = false;       // columns of the weight are not in the order of inputs
  bool has_workspace = false;  // that quantized weights want
  bool rounds_x = false;       // x may be rounded to fp8
  bool has_fp8_matmul = true;  // cuBLASLt has products of fp8 with scales

  int64_t num_weight_rows() const { return gated ? 2 * out_features : out_features; }
};

// What decides between kernels that all take a problem: as timed on a GPU, data of that GPU.
struct GemmTuning {
  // Split-K tiles against the skinny GEMM and cuBLASLt. Weights of fewer elements are small.
  int64_t small_elements;
  int64_t large_min_rows;  // large weights from here on, all from the next
  int64_t any_min_rows;
  int64_t any_max_rows;   // above: small weights, and
  int64_t deep_min_rows;  // from here on those with more inputs than outputs, whose sums clusters share
  int64_t split_k_max_rows;
  // Of more rows, every CTA's share of reading the squares costs more than a norm's launch.
  int64_t deferred_norm_max_rows;
  // The gated-MLP GEMM, above any_max_rows: where its tiles keep so much of the SMs busy. Two CTAs
  // multiply 256 rows however few there are, which pays from some number on.
  double min_wave_efficiency;
  int64_t cta_pair_min_rows;
  // The skinny GEMM of codes, before tiles of codes.
  int64_t skinny_quantized_max_rows;
  int64_t fp8_min_rows;        // products of fp8 with fp8, where x may be rounded
  int64_t fp8_block_min_rows;  // the same where scales are those of blocks
  // Swap-AB tiles of codes: each 128 rows read and widen W anew. 256 rows cost two thirds of what they do by
  // a weight that is widened once. Scaled codes, whose tiles have 128 rows of x, pay from some number on,
  // and from fewer where the weight has so many elements.
  int64_t scaled_quantized_min_rows, scaled_quantized_max_rows;
  int64_t large_scaled_elements, large_scaled_quantized_min_rows;
  int64_t quantized_tile_max_rows;
  // The quantized GEMM, of what neither takes: its tiles of 64 rows cost more still.
  int64_t quantized_max_rows;
  int64_t min_rows_of_widened;  // a weight that is widened once, of what the quantized GEMM does not take
  // The GEMM of a lone row: weights of fewer elements come no later by the skinny GEMM.
  int64_t gemv_min_elements;
  // The skinny GEMM: with more rows than the first x weighs as much as the weights that a CTA takes at once,
  // so layers of more features than the second (heads) are left to cuBLASLt.
  int64_t skinny_any_width_max_rows;
  int64_t skinny_more_rows_max_features;
};
// The record of the GPU's compute capability, or the default.
const GemmTuning& gemm_tuning(const GpuFacts& gpu);

struct GemmRow {
  GemmKernel kernel;
  std::string_view name;
  bool (*takes)(const GemmProblem& problem, const GpuFacts& gpu);
  // Of problems that it takes: whether it is faster than what stands below it.
  bool (*is_faster)(const GemmProblem& problem, const GpuFacts& gpu, const GemmTuning& tuning);
  // Of problems that it takes and that have a norm: whether it norms x itself; else a launch before does.
  bool (*norms)(const GemmProblem& problem);
  std::string_view why;  // it is chosen
};

// Every kernel once, in the order of GemmKernel, which is that of preference.
std::span<const GemmRow> gemm_rows();
const GemmRow& gemm_row(GemmKernel kernel);

// The first row that takes the problem and is faster. There is one for every problem.
const GemmRow& choose(const GemmProblem& problem, const GpuFacts& gpu, const GemmTuning& tuning);
inline const GemmRow& choose(const GemmProblem& problem, const GpuFacts& gpu) {
  return choose(problem, gpu, gemm_tuning(gpu));
}

}  // namespace attend::kernels::cuda
