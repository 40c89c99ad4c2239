// Selects the kernel of a linear layer on a GPU from a table of candidates. Pure: works for any GPU on any
// machine.
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
  kSkinnyQuantized,     // sm80/skinny_gemm.h, quantized weights
  kFp8,                 // fp8_linear.cc
  kFp8Blocks,           // fp8_linear.cc, block scales
  kScaledQuantized,     // sm90/swap_ab/, scales applied to the operands: int4 weights, fp8 rows
  kSwapAbQuantized,     // sm90/swap_ab/, quantized weights
  kGemv,                // sm90/gemv/
  kSkinny,              // sm80/skinny_gemm.h
  kInvariantSm90,       // sm90/batch_invariant/
  kInvariantSm80,       // common/batch_invariant_gemm_kernel.h
  kQuantized,           // sm80/quantized_gemm_kernel.h
  kDequantizeThenGemm,  // quantized_linear.cc
  kCublasLt,            // matmul.h
  kNaive,               // common/batch_invariant_gemm_kernel.h
  kGemmThenSilu,        // no fused gate, up and SiLU: another kernel of this list, then silu_mul()
};
inline constexpr int kNumGemmKernels = 16;

// RMSNorm of x before the product (InputNorm of linear.h).
enum class GemmNorm : uint8_t {
  kNone,
  kInline,
  kDeferred,  // deferred by the previous GEMM
};

// Properties that the choice depends on. "Aligned" means that rows start at multiples of 16 bytes.
struct GemmProblem {
  int64_t num_rows = 0, in_features = 0;
  int64_t out_features = 0;    // features of out; if `gated`, the weight has 2 out_features rows
  DType dtype = DType::kBF16;  // dtype of x, and of a plain weight
  DType out_dtype = DType::kBF16;
  bool gated = false;  // out = silu(gate) * up
  bool batch_invariant = false;
  bool x_aligned = true, weight_aligned = true;
  bool out_aligned_8 = true;  // rows of out start at multiples of 8 bytes
  GemmNorm norm = GemmNorm::kNone;
  DType norm_dtype = DType::kBF16;  // dtype of the norm weight
  bool norm_aligned = true;
  bool normalized_aligned = true;  // alignment of the buffer for x after a separate norm launch
  WeightFormat format = WeightFormat::kPlain;
  int64_t group_outs = 1, group_ins = 0;  // outputs and inputs of a quantized weight that share a scale
  DType scale_dtype = DType::kBF16;
  bool has_zeros = false;
  bool scales_aligned = true;  // scales and zeros start at multiples of 4 bytes
  bool reorders = false;       // columns of the weight are not in the order of inputs
  bool has_workspace = false;  // workspace of the quantized kernels is available
  bool rounds_x = false;       // x may be rounded to fp8
  bool has_fp8_matmul = true;  // cuBLASLt has scaled fp8 products

  int64_t num_weight_rows() const { return gated ? 2 * out_features : out_features; }
};

// Thresholds between kernels that support the same problem, measured on a GPU.
struct GemmTuning {
  // Split-K tiles against the skinny GEMM and cuBLASLt. Weights with fewer elements are small.
  int64_t small_elements;
  int64_t large_min_rows;  // first for large weights, second for all weights
  int64_t any_min_rows;
  int64_t any_max_rows;   // upper limit, except for small weights and
  int64_t deep_min_rows;  // from this limit on, weights with more inputs than outputs, where clusters share
                          // sums
  int64_t split_k_max_rows;
  // Above this number of rows, reading the squares in every CTA costs more than a norm launch.
  int64_t deferred_norm_max_rows;
  // Gated-MLP GEMM above any_max_rows: the minimum fraction of SMs that its tiles keep busy. CTA pairs
  // multiply 256 rows regardless of the actual number, which pays off from cta_pair_min_rows.
  double min_wave_efficiency;
  int64_t cta_pair_min_rows;
  // Skinny GEMM of quantized weights, before tiles of quantized weights.
  int64_t skinny_quantized_max_rows;
  int64_t fp8_min_rows;        // fp8 x fp8 products, if x may be rounded
  int64_t fp8_block_min_rows;  // the same with block scales
  // Swap-AB tiles of quantized weights: each 128 rows read and dequantize W again. 256 rows cost two thirds
  // of dequantizing the weight once. Tiles with scaled operands, which have 128 rows of x, pay off from
  // scaled_quantized_min_rows, and from fewer rows if the weight has large_scaled_elements.
  int64_t scaled_quantized_min_rows, scaled_quantized_max_rows;
  int64_t large_scaled_elements, large_scaled_quantized_min_rows;
  int64_t quantized_tile_max_rows;
  // Quantized GEMM, for problems that neither kernel supports: its tiles of 64 rows cost more.
  int64_t quantized_max_rows;
  int64_t widened_min_rows;  // minimum rows to dequantize the weight once, if the quantized GEMM does not
                             // support the problem
  // GEMV of a single row: for weights with fewer elements the skinny GEMM is as fast.
  int64_t gemv_min_elements;
  // Skinny GEMM: above the first number of rows, x is as large as the weights that a CTA loads together.
  // Layers with more features than the second (lm_head) then use cuBLASLt.
  int64_t skinny_any_width_max_rows;
  int64_t skinny_more_rows_max_features;
};
// Returns the tuning for the GPU's compute capability, or the default.
const GemmTuning& gemm_tuning(const GpuFacts& gpu);

struct GemmRow {
  GemmKernel kernel;
  std::string_view name;
  bool (*supports)(const GemmProblem& problem, const GpuFacts& gpu);
  // For supported problems: true if it is faster than the rows below it.
  bool (*is_faster)(const GemmProblem& problem, const GpuFacts& gpu, const GemmTuning& tuning);
  // For supported problems with a norm: true if the kernel normalizes x itself. Otherwise a separate launch
  // does.
  bool (*norms)(const GemmProblem& problem);
  std::string_view why;  // reason for choosing it
};

// All kernels in the order of GemmKernel, which is the order of preference.
std::span<const GemmRow> gemm_rows();
const GemmRow& gemm_row(GemmKernel kernel);

// Returns the first row that supports the problem and is faster. Every problem has one.
const GemmRow& choose(const GemmProblem& problem, const GpuFacts& gpu, const GemmTuning& tuning);
inline const GemmRow& choose(const GemmProblem& problem, const GpuFacts& gpu) {
  return choose(problem, gpu, gemm_tuning(gpu));
}

}  // namespace attend::kernels::cuda
