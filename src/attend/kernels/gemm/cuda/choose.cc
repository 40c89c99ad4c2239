#include "attend/kernels/gemm/cuda/choose.h"

#include <array>
#include <bit>

#include "attend/kernels/common/choose_row.h"
#include "attend/kernels/gemm/cuda/common/round_rows_kernel.h"
#include "attend/kernels/gemm/cuda/sm80/quantized_gemm_kernel.h"
#include "attend/kernels/gemm/cuda/sm80/skinny_gemm_kernel.h"
#include "attend/kernels/gemm/cuda/sm80/skinny_quantized_kernel.h"
#include "attend/kernels/gemm/cuda/sm90/fp8_block/fp8_block_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/gated_mlp/gated_mlp_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/gemv/gemv.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.h"

namespace attend::kernels::cuda {
namespace {

constexpr GemmTuning kH200{.small_elements = int64_t{1} << 23,
                           .large_min_rows = 17,
                           .any_min_rows = 33,
                           .any_max_rows = 64,
                           .deep_min_rows = 97,
                           .split_k_max_rows = 128,
                           .deferred_norm_max_rows = 32,
                           .min_wave_efficiency = 0.8,
                           .cta_pair_min_rows = 192,
                           .skinny_quantized_max_rows = sm80::kMaxSkinnyQuantizedRows,
                           .fp8_min_rows = sm80::kMaxSkinnyQuantizedRows + 1,
                           .fp8_block_min_rows = 129,
                           .scaled_quantized_min_rows = 65,
                           .scaled_quantized_max_rows = 512,
                           .large_scaled_elements = int64_t{1} << 25,
                           .large_scaled_quantized_min_rows = 33,
                           .quantized_tile_max_rows = 256,
                           .quantized_max_rows = 64,
                           .widened_min_rows = sm80::kLargeQuantizedRows + 1,
                           .gemv_min_elements = int64_t{1} << 23,
                           .skinny_any_width_max_rows = 16,
                           .skinny_more_rows_max_features = 32768};

// Tuning of the H200, used for other GPUs until they are measured.
constexpr std::array kGemmTunings{GpuTuning<GemmTuning>{"H100, H200", 9, 0, kH200},
                                  GpuTuning<GemmTuning>{"Ampere, others", 8, 0, kH200}};

bool always(const GemmProblem&, const GpuFacts&, const GemmTuning&) { return true; }
bool never_norms(const GemmProblem&) { return false; }

bool x_aligned_after_norm(const GemmProblem& problem) {
  return problem.norm == GemmNorm::kNone ? problem.x_aligned : problem.normalized_aligned;
}

// Returns true if x and the weight are 16-bit and consist of aligned groups of eight elements. x may be the
// output of a separate norm launch.
bool fits_tensor_cores(const GemmProblem& problem, bool x_aligned) {
  return problem.format == WeightFormat::kPlain && problem.dtype != DType::kF32 &&
         problem.in_features % 8 == 0 && x_aligned && problem.weight_aligned;
}

bool fits_sm90_tiles(const GemmProblem& problem, const GpuFacts& gpu) {
  return gpu.runs_sm90a() && fits_tensor_cores(problem, x_aligned_after_norm(problem)) &&
         problem.num_weight_rows() % sm90::kPairRows == 0;
}

bool gated_mlp_supports(const GemmProblem& problem, const GpuFacts& gpu) {
  return problem.gated && !problem.batch_invariant && problem.num_rows <= sm90::kMaxGatedMlpRows &&
         fits_sm90_tiles(problem, gpu) && problem.out_dtype == problem.dtype && problem.out_aligned_8;
}

bool gated_mlp_is_faster(const GemmProblem& problem, const GpuFacts& gpu, const GemmTuning& tuning) {
  if (problem.num_rows <= tuning.any_max_rows) return false;
  if (sm90::multicasts_weights(problem.num_rows) && problem.num_rows < tuning.cta_pair_min_rows) return false;
  return sm90::gated_mlp_wave_efficiency(problem.num_weight_rows(), problem.num_rows, gpu.num_sms) >=
         tuning.min_wave_efficiency;
}

// True if the gated-MLP GEMM can serve all row counts of a batch-invariant layer: one kernel must serve all
// of them, or none.
bool supports_invariant_gated(const GemmProblem& problem, const GpuFacts& gpu) {
  return problem.gated && problem.batch_invariant && fits_sm90_tiles(problem, gpu);
}

// Excludes batch-invariant problems: CTAs sum K in another order than kernels for other row counts.
bool split_k_supports(const GemmProblem& problem, const GpuFacts& gpu) {
  return !problem.batch_invariant && fits_sm90_tiles(problem, gpu);
}

bool split_k_is_faster(const GemmProblem& problem, const GpuFacts&, const GemmTuning& tuning) {
  const int64_t num_rows = problem.num_rows;
  if (num_rows < tuning.large_min_rows || num_rows > tuning.split_k_max_rows) return false;
  const int64_t num_weight_rows = problem.num_weight_rows();
  const bool small = num_weight_rows * problem.in_features < tuning.small_elements;
  if (num_rows < tuning.any_min_rows) return !small;
  const bool deep = problem.in_features > num_weight_rows;
  return num_rows <= tuning.any_max_rows || small || (deep && num_rows >= tuning.deep_min_rows);
}

bool split_k_norms(const GemmProblem& problem) { return problem.norm == GemmNorm::kDeferred; }

// Rejects f16: its range is too small for the product of x and the norm weight before scaling. Rejects
// batch-invariant problems: a norm inside the GEMM rounds differently than the separate norm of the
// batch-invariant GEMM.
bool skinny_norms(const GemmProblem& problem) {
  return !problem.batch_invariant && problem.dtype == DType::kBF16 && problem.norm_aligned &&
         (problem.norm_dtype == DType::kBF16 || problem.norm_dtype == DType::kF32);
}
bool skinny_quantized_norms(const GemmProblem& problem) {
  return skinny_norms(problem) && problem.norm_dtype == problem.dtype;
}

// Excludes batch-invariant problems: its bits differ from those of kernels for more rows.
bool gemv_supports(const GemmProblem& problem, const GpuFacts& gpu) {
  return gpu.runs_sm90a() && !problem.batch_invariant && !problem.gated && problem.num_rows == 1 &&
         problem.out_dtype == problem.dtype && problem.out_features % sm90::kGemvOuts == 0 &&
         problem.in_features % sm90::kGemvInputUnit == 0 && problem.in_features <= sm90::kMaxGemvInputs &&
         fits_tensor_cores(problem, x_aligned_after_norm(problem));
}

// Requires a large weight that fits into registers. A norm would need a separate launch.
bool gemv_is_faster(const GemmProblem& problem, const GpuFacts& gpu, const GemmTuning& tuning) {
  return problem.norm == GemmNorm::kNone &&
         problem.out_features * problem.in_features >= tuning.gemv_min_elements &&
         problem.out_features / sm90::kGemvOuts <= int64_t{sm90::kGemvCtasPerSm} * gpu.num_sms;
}

bool skinny_supports(const GemmProblem& problem, const GpuFacts& gpu) {
  const bool x_aligned = problem.norm == GemmNorm::kNone || skinny_norms(problem)
                             ? problem.x_aligned
                             : problem.normalized_aligned;
  const bool supports_gated =
      !(problem.gated && problem.batch_invariant) || supports_invariant_gated(problem, gpu);
  return supports_gated && problem.num_rows <= sm80::max_skinny_rows(gpu.shared_bytes) &&
         problem.out_features % sm80::kFeatures == 0 && fits_tensor_cores(problem, x_aligned);
}

bool skinny_is_faster(const GemmProblem& problem, const GpuFacts&, const GemmTuning& tuning) {
  return problem.batch_invariant || problem.num_rows <= tuning.skinny_any_width_max_rows ||
         problem.out_features <= tuning.skinny_more_rows_max_features;
}

bool invariant_supports(const GemmProblem& problem, const GpuFacts&) {
  return problem.batch_invariant && !problem.gated &&
         fits_tensor_cores(problem, x_aligned_after_norm(problem));
}

bool invariant_sm90_supports(const GemmProblem& problem, const GpuFacts& gpu) {
  return supports_invariant_gated(problem, gpu) || (gpu.runs_sm90a() && invariant_supports(problem, gpu));
}

// Requires 16-byte loads of quantized values per lane, and 16-bit activations.
bool fits_quantized_kernels(const GemmProblem& problem) {
  const int64_t inputs_per_16_bytes = has_four_bits(problem.format) ? 32 : 16;
  return problem.format != WeightFormat::kPlain && problem.dtype != DType::kF32 &&
         problem.in_features % inputs_per_16_bytes == 0 && x_aligned_after_norm(problem) &&
         problem.weight_aligned;
}

bool skinny_quantized_supports(const GemmProblem& problem, const GpuFacts& gpu) {
  const bool bytes = has_eight_bits(problem.format);
  const bool x_aligned = problem.norm == GemmNorm::kNone || skinny_quantized_norms(problem)
                             ? problem.x_aligned
                             : problem.normalized_aligned;
  const int64_t in_features = problem.in_features;
  const auto supports_groups = [&] {
    if (bytes)
      return in_features % sm80::kByteRowInputs == 0 &&
             (problem.group_ins >= in_features || (problem.group_ins % sm80::kByteRowInputs == 0 &&
                                                   sm80::kMaxByteGroupInputs % problem.group_ins == 0)) &&
             (problem.group_outs >= problem.num_weight_rows() ||
              std::has_single_bit(static_cast<uint64_t>(problem.group_outs)));
    return in_features % sm80::kInt4RowInputs == 0 && problem.group_ins == sm80::kInt4GroupInputs &&
           problem.scale_dtype != DType::kF32 &&
           (!problem.has_zeros || in_features / sm80::kInt4GroupInputs % 4 == 0);
  };
  return !problem.batch_invariant && problem.num_rows <= sm80::kMaxSkinnyQuantizedRows &&
         problem.dtype != DType::kF32 && (bytes || problem.format == WeightFormat::kInt4) &&
         supports_groups() && problem.out_features % sm80::kFeatures == 0 && x_aligned &&
         problem.weight_aligned && problem.scales_aligned && !problem.reorders &&
         gpu.shared_bytes >= sm80::kLargeSharedBytes &&
         sm80::skinny_quantized_x_bytes(problem.num_rows, in_features) <= sm80::kMaxSkinnyQuantizedXBytes;
}

bool skinny_quantized_are_faster(const GemmProblem& problem, const GpuFacts&, const GemmTuning& tuning) {
  return problem.num_rows <= tuning.skinny_quantized_max_rows;
}

// The launch that rounds x before the product also applies the norm.
bool fp8_norms(const GemmProblem& problem) {
  return problem.norm_dtype == problem.dtype && problem.norm_aligned;
}

bool rounds_to_fp8(const GemmProblem& problem, const GpuFacts& gpu) {
  constexpr int64_t kUnit = 16;  // required by TMA and cuBLASLt
  const bool x_aligned =
      problem.norm == GemmNorm::kNone || fp8_norms(problem) ? problem.x_aligned : problem.normalized_aligned;
  return gpu.runs_sm90a() && problem.rounds_x && problem.format == WeightFormat::kFp8 &&
         !problem.batch_invariant && problem.dtype != DType::kF32 && problem.in_features % kUnit == 0 &&
         problem.in_features <= kMaxRoundedInputs && x_aligned && problem.weight_aligned &&
         problem.has_workspace;
}

// Requires one scale per output, shared by all inputs.
bool fp8_supports(const GemmProblem& problem, const GpuFacts& gpu) {
  constexpr int64_t kUnit = 16;  // required by cuBLASLt
  return rounds_to_fp8(problem, gpu) && problem.has_fp8_matmul && problem.group_ins >= problem.in_features &&
         problem.num_weight_rows() % kUnit == 0;
}

// Requires one scale per tile of outputs and block of inputs.
bool fp8_blocks_support(const GemmProblem& problem, const GpuFacts& gpu) {
  return rounds_to_fp8(problem, gpu) && problem.group_ins == sm90::kFp8BlockInputs &&
         (problem.group_outs % sm90::kFp8TileOuts == 0 || problem.group_outs >= problem.num_weight_rows()) &&
         problem.num_weight_rows() % 8 == 0 && problem.out_dtype == problem.dtype && problem.out_aligned_8;
}

bool fp8_is_faster(const GemmProblem& problem, const GpuFacts&, const GemmTuning& tuning) {
  return problem.num_rows >= tuning.fp8_min_rows;
}

bool fp8_blocks_are_faster(const GemmProblem& problem, const GpuFacts&, const GemmTuning& tuning) {
  return problem.num_rows >= tuning.fp8_block_min_rows;
}

bool quantized_tiles_support(const GemmProblem& problem, const GpuFacts& gpu) {
  const bool has_whole_groups =
      problem.group_ins >= problem.in_features || problem.group_ins % sm90::kScaledInputs == 0;
  // Other kernels sum batch-invariant problems of more rows in another order.
  return gpu.runs_sm90a() && !problem.batch_invariant && fits_quantized_kernels(problem) &&
         problem.format != WeightFormat::kMxFp4 && has_whole_groups && !problem.reorders &&
         problem.num_weight_rows() % sm90::kPairRows == 0;
}

bool quantized_tiles_are_faster(const GemmProblem& problem, const GpuFacts&, const GemmTuning& tuning) {
  return problem.num_rows <= tuning.quantized_tile_max_rows;
}

// Scales are applied to the operands: the weight for int4, whole rows of x for fp8.
bool scaled_quantized_supports(const GemmProblem& problem, const GpuFacts& gpu) {
  if (!quantized_tiles_support(problem, gpu) || problem.norm == GemmNorm::kDeferred ||
      problem.format == WeightFormat::kInt8)
    return false;
  if (problem.format == WeightFormat::kFp8) return problem.group_ins >= problem.in_features;
  return problem.group_ins == sm90::kScaledInputs && problem.scale_dtype == problem.dtype &&
         problem.in_features % sm90::kScaledStageInputs == 0 && problem.scales_aligned;
}

bool scaled_quantized_are_faster(const GemmProblem& problem, const GpuFacts&, const GemmTuning& tuning) {
  const bool large = problem.num_weight_rows() * problem.in_features >= tuning.large_scaled_elements;
  return problem.num_rows >=
             (large ? tuning.large_scaled_quantized_min_rows : tuning.scaled_quantized_min_rows) &&
         problem.num_rows <= tuning.scaled_quantized_max_rows;
}

bool quantized_supports(const GemmProblem& problem, const GpuFacts&) {
  const bool whole_blocks = has_four_bits(problem.format) || problem.group_ins >= problem.in_features ||
                            problem.group_ins % sm80::kEightBitBlockInputs == 0;
  return fits_quantized_kernels(problem) && !problem.gated && whole_blocks &&
         (!problem.reorders || problem.has_workspace);
}

bool quantized_is_faster(const GemmProblem& problem, const GpuFacts&, const GemmTuning& tuning) {
  return problem.batch_invariant || !problem.has_workspace || problem.num_rows <= tuning.quantized_max_rows;
}

bool dequantize_then_gemm_supports(const GemmProblem& problem, const GpuFacts&) {
  return fits_quantized_kernels(problem) && !problem.gated && !problem.batch_invariant &&
         problem.has_workspace;
}

// Used for problems that the quantized GEMM does not support or does not run faster.
bool dequantize_then_gemm_is_faster(const GemmProblem& problem, const GpuFacts&, const GemmTuning& tuning) {
  return problem.num_rows >= tuning.widened_min_rows;
}

bool cublaslt_supports(const GemmProblem& problem, const GpuFacts&) {
  return problem.format == WeightFormat::kPlain && !problem.batch_invariant && !problem.gated;
}

constexpr std::array kRows{
    GemmRow{GemmKernel::kGatedMlp, "gated-MLP GEMM (sm90)", gated_mlp_supports, gated_mlp_is_faster,
            never_norms, "fused SiLU, and tiles that keep the SMs busy"},
    GemmRow{GemmKernel::kSwapAbSplitK, "swap-AB split-K GEMM (sm90)", split_k_supports, split_k_is_faster,
            split_k_norms, "number of rows and size of the weight for which clusters split K best"},
    GemmRow{GemmKernel::kSkinnyQuantized, "skinny quantized GEMM", skinny_quantized_supports,
            skinny_quantized_are_faster, skinny_quantized_norms,
            "few rows: bound by reading the quantized weight"},
    GemmRow{GemmKernel::kFp8, "fp8 x fp8 GEMM (cuBLASLt)", fp8_supports, fp8_is_faster, fp8_norms,
            "x may be rounded to fp8: half the tensor-core time, and W is read quantized"},
    GemmRow{GemmKernel::kFp8Blocks, "fp8 x fp8 block-scaled GEMM (sm90)", fp8_blocks_support,
            fp8_blocks_are_faster, fp8_norms,
            "x may be rounded to fp8: half the tensor-core time, and W is read quantized"},
    GemmRow{GemmKernel::kScaledQuantized, "swap-AB scaled quantized GEMM (sm90)", scaled_quantized_supports,
            scaled_quantized_are_faster, never_norms,
            "reads the quantized weight, without scaling sums: enough rows for the tensor cores"},
    GemmRow{GemmKernel::kSwapAbQuantized, "swap-AB quantized GEMM (sm90)", quantized_tiles_support,
            quantized_tiles_are_faster, split_k_norms, "reads the quantized weight: few rows"},
    GemmRow{GemmKernel::kGemv, "GEMV (sm90)", gemv_supports, gemv_is_faster, never_norms,
            "one row, and the weight fits in registers: all of it is loaded before x is available"},
    GemmRow{GemmKernel::kSkinny, "skinny GEMM", skinny_supports, skinny_is_faster, skinny_norms,
            "few rows: bound by reading the weight"},
    GemmRow{GemmKernel::kInvariantSm90, "batch-invariant GEMM (sm90)", invariant_sm90_supports, always,
            never_norms, "batch-invariant, more rows than the skinny GEMM supports"},
    GemmRow{GemmKernel::kInvariantSm80, "batch-invariant GEMM (sm80)", invariant_supports, always,
            never_norms, "batch-invariant, more rows than the skinny GEMM supports"},
    GemmRow{GemmKernel::kQuantized, "quantized GEMM", quantized_supports, quantized_is_faster, never_norms,
            "reads the quantized weight: few rows, batch-invariant, or no workspace"},
    GemmRow{GemmKernel::kDequantizeThenGemm, "dequantize, then GEMM", dequantize_then_gemm_supports,
            dequantize_then_gemm_is_faster, never_norms,
            "many rows: dequantizing the weight once is faster than once per tile of rows"},
    GemmRow{GemmKernel::kCublasLt, "cuBLASLt", cublaslt_supports, always, never_norms,
            "no kernel above supports the problem or is faster"},
    GemmRow{GemmKernel::kNaive, "naive GEMM",
            [](const GemmProblem& problem, const GpuFacts&) { return !problem.gated; }, always, never_norms,
            "no tensor-core kernel supports the problem, which is batch-invariant or has a quantized weight"},
    GemmRow{GemmKernel::kGemmThenSilu, "GEMM, then SiLU",
            [](const GemmProblem& problem, const GpuFacts&) { return problem.gated; }, always, never_norms,
            "no kernel above fuses both or is faster"}};
static_assert(kRows.size() == kNumGemmKernels);

static_assert(are_in_kernel_order(kRows));

}  // namespace

const GemmTuning& gemm_tuning(const GpuFacts& gpu) { return find_tuning(kGemmTunings, gpu); }

std::span<const GemmRow> gemm_rows() { return kRows; }

const GemmRow& gemm_row(GemmKernel kernel) { return kRows[static_cast<size_t>(kernel)]; }

const GemmRow& choose(const GemmProblem& problem, const GpuFacts& gpu, const GemmTuning& tuning) {
  return first_row("linear", gemm_rows(), problem, gpu, tuning);
}

}  // namespace attend::kernels::cuda
