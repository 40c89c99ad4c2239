#include "attend/kernels/gemm/cuda/choose.h"

#include <array>
#include <bit>

#include "attend/kernels/common/choose_row.h"
#include "attend/kernels/gemm/cuda/common/round_rows_kernel.h"
#include "attend/kernels/gemm/cuda/sm80/quantised_gemm_kernel.h"
#include "attend/kernels/gemm/cuda/sm80/skinny_codes_kernel.h"
#include "attend/kernels/gemm/cuda/sm80/skinny_gemm_kernel.h"
#include "attend/kernels/gemm/cuda/sm90/fp8_block/fp8_block_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/gated_mlp/gated_mlp_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/gemv/lone_row_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.h"

namespace attend::kernels::cuda {
namespace {

constexpr GemmTuning kH200{.small_elements = int64_t{1} << 23,
                           .min_rows_of_large = 17,
                           .min_rows_of_any = 33,
                           .max_rows_of_any = 64,
                           .min_rows_of_deep = 97,
                           .max_rows_of_tiles = 128,
                           .max_rows_of_deferred_norm = 32,
                           .min_wave_efficiency = 0.8,
                           .min_rows_of_cta_pairs = 192,
                           .max_rows_of_skinny_codes = sm80::kMaxSkinnyCodeRows,
                           .min_rows_of_fp8 = sm80::kMaxSkinnyCodeRows + 1,
                           .min_rows_of_fp8_blocks = 129,
                           .min_rows_of_scaled_codes = 65,
                           .max_rows_of_scaled_codes = 512,
                           .large_scaled_elements = int64_t{1} << 25,
                           .min_rows_of_large_scaled_codes = 33,
                           .max_rows_of_code_tiles = 256,
                           .max_rows_of_codes = 64,
                           .min_rows_of_widened = sm80::kManyQuantisedRows + 1,
                           .min_elements_of_lone_row = int64_t{1} << 23,
                           .max_rows_of_any_width = 16,
                           .max_features_of_more_rows = 32768};

// The H200's, until another GPU is timed.
constexpr std::array kGemmTunings{GpuTuning<GemmTuning>{"H100, H200", 9, 0, kH200},
                                  GpuTuning<GemmTuning>{"Ampere, others", 8, 0, kH200}};

bool always(const GemmProblem&, const GpuFacts&, const GemmTuning&) { return true; }
bool never_norms(const GemmProblem&) { return false; }

bool x_aligned_behind_norm(const GemmProblem& problem) {
  return problem.norm == GemmNorm::kNone ? problem.x_aligned : problem.normalized_aligned;
}

// Groups of eight 16-bit inputs of x, which a norm may have left, and of the weight.
bool fits_tensor_cores(const GemmProblem& problem, bool x_aligned) {
  return problem.format == WeightFormat::kPlain && problem.dtype != DType::kF32 &&
         problem.in_features % 8 == 0 && x_aligned && problem.weight_aligned;
}

bool fits_sm90_tiles(const GemmProblem& problem, const GpuFacts& gpu) {
  return gpu.runs_sm90a() && fits_tensor_cores(problem, x_aligned_behind_norm(problem)) &&
         problem.num_weight_rows() % sm90::kPairRows == 0;
}

bool gated_mlp_takes(const GemmProblem& problem, const GpuFacts& gpu) {
  return problem.gated && !problem.batch_invariant && problem.num_rows <= sm90::kMaxGatedMlpRows &&
         fits_sm90_tiles(problem, gpu) && problem.out_dtype == problem.dtype && problem.out_aligned_8;
}

bool gated_mlp_is_faster(const GemmProblem& problem, const GpuFacts& gpu, const GemmTuning& tuning) {
  if (problem.num_rows <= tuning.max_rows_of_any) return false;
  if (sm90::multicasts_weights(problem.num_rows) && problem.num_rows < tuning.min_rows_of_cta_pairs)
    return false;
  return sm90::gated_mlp_wave_efficiency(problem.num_weight_rows(), problem.num_rows, gpu.num_sms) >=
         tuning.min_wave_efficiency;
}

// Batch-invariant, with SiLU in the product: all of a layer's kernels, whatever the rows, or none of them.
bool takes_invariant_gated(const GemmProblem& problem, const GpuFacts& gpu) {
  return problem.gated && problem.batch_invariant && fits_sm90_tiles(problem, gpu);
}

// Its CTAs add K in another order than the kernels of other numbers of rows.
bool split_k_takes(const GemmProblem& problem, const GpuFacts& gpu) {
  return !problem.batch_invariant && fits_sm90_tiles(problem, gpu);
}

bool split_k_is_faster(const GemmProblem& problem, const GpuFacts&, const GemmTuning& tuning) {
  const int64_t num_rows = problem.num_rows;
  if (num_rows < tuning.min_rows_of_large || num_rows > tuning.max_rows_of_tiles) return false;
  const int64_t num_weight_rows = problem.num_weight_rows();
  const bool small = num_weight_rows * problem.in_features < tuning.small_elements;
  if (num_rows < tuning.min_rows_of_any) return !small;
  const bool deep = problem.in_features > num_weight_rows;
  return num_rows <= tuning.max_rows_of_any || small || (deep && num_rows >= tuning.min_rows_of_deep);
}

bool split_k_norms(const GemmProblem& problem) { return problem.norm == GemmNorm::kDeferred; }

// The range of f16 is too small for a product of x and the norm's weight before it is scaled. Elsewhere a
// norm in the product would be rounded in another way than the one before the batch-invariant GEMM.
bool skinny_norms(const GemmProblem& problem) {
  return !problem.batch_invariant && problem.dtype == DType::kBF16 && problem.norm_dtype == DType::kBF16 &&
         problem.norm_aligned;
}

// Its bits are not those of more rows.
bool lone_row_takes(const GemmProblem& problem, const GpuFacts& gpu) {
  return gpu.runs_sm90a() && !problem.batch_invariant && !problem.gated && problem.num_rows == 1 &&
         problem.out_dtype == problem.dtype && problem.out_features % sm90::kLoneRowOuts == 0 &&
         problem.in_features % sm90::kLoneRowInputUnit == 0 &&
         problem.in_features <= sm90::kMaxLoneRowInputs &&
         fits_tensor_cores(problem, x_aligned_behind_norm(problem));
}

// Registers hold all of the weight, and it is large. A norm would be a launch of its own.
bool lone_row_is_faster(const GemmProblem& problem, const GpuFacts& gpu, const GemmTuning& tuning) {
  return problem.norm == GemmNorm::kNone &&
         problem.out_features * problem.in_features >= tuning.min_elements_of_lone_row &&
         problem.out_features / sm90::kLoneRowOuts <= int64_t{sm90::kLoneRowCtasOfSm} * gpu.num_sms;
}

bool skinny_takes(const GemmProblem& problem, const GpuFacts& gpu) {
  const bool x_aligned = problem.norm == GemmNorm::kNone || skinny_norms(problem)
                             ? problem.x_aligned
                             : problem.normalized_aligned;
  const bool gated_alike = !(problem.gated && problem.batch_invariant) || takes_invariant_gated(problem, gpu);
  return gated_alike && problem.num_rows <= sm80::max_skinny_rows(gpu.shared_bytes) &&
         problem.out_features % sm80::kFeatures == 0 && fits_tensor_cores(problem, x_aligned);
}

bool skinny_is_faster(const GemmProblem& problem, const GpuFacts&, const GemmTuning& tuning) {
  return problem.batch_invariant || problem.num_rows <= tuning.max_rows_of_any_width ||
         problem.out_features <= tuning.max_features_of_more_rows;
}

bool invariant_takes(const GemmProblem& problem, const GpuFacts&) {
  return problem.batch_invariant && !problem.gated &&
         fits_tensor_cores(problem, x_aligned_behind_norm(problem));
}

bool invariant_sm90_takes(const GemmProblem& problem, const GpuFacts& gpu) {
  return takes_invariant_gated(problem, gpu) || (gpu.runs_sm90a() && invariant_takes(problem, gpu));
}

// Codes that lanes load 16 bytes of at once, and 16-bit activations.
bool fits_codes(const GemmProblem& problem) {
  const int64_t inputs_of_16_bytes = has_four_bits(problem.format) ? 32 : 16;
  return problem.format != WeightFormat::kPlain && problem.dtype != DType::kF32 &&
         problem.in_features % inputs_of_16_bytes == 0 && x_aligned_behind_norm(problem) &&
         problem.weight_aligned;
}

bool skinny_codes_take(const GemmProblem& problem, const GpuFacts& gpu) {
  const bool bytes = has_eight_bits(problem.format);
  const bool x_aligned = problem.norm == GemmNorm::kNone || skinny_norms(problem)
                             ? problem.x_aligned
                             : problem.normalized_aligned;
  const int64_t in_features = problem.in_features;
  const auto takes_groups = [&] {
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
  return !problem.batch_invariant && problem.num_rows <= sm80::kMaxSkinnyCodeRows &&
         problem.dtype != DType::kF32 && (bytes || problem.format == WeightFormat::kInt4) && takes_groups() &&
         problem.out_features % sm80::kFeatures == 0 && x_aligned && problem.weight_aligned &&
         problem.scales_aligned && !problem.reorders && gpu.shared_bytes >= sm80::kLargeSharedBytes &&
         sm80::skinny_code_x_bytes(problem.num_rows, in_features) <= sm80::kMaxSkinnyCodeXBytes;
}

bool skinny_codes_are_faster(const GemmProblem& problem, const GpuFacts&, const GemmTuning& tuning) {
  return problem.num_rows <= tuning.max_rows_of_skinny_codes;
}

// Its launch before the product rounds x, and norms it on the way.
bool fp8_norms(const GemmProblem& problem) {
  return problem.norm_dtype == problem.dtype && problem.norm_aligned;
}

bool rounds_to_fp8(const GemmProblem& problem, const GpuFacts& gpu) {
  constexpr int64_t kUnit = 16;  // of TMA and cuBLASLt
  const bool x_aligned =
      problem.norm == GemmNorm::kNone || fp8_norms(problem) ? problem.x_aligned : problem.normalized_aligned;
  return gpu.runs_sm90a() && problem.rounds_x && problem.format == WeightFormat::kFp8 &&
         !problem.batch_invariant && problem.dtype != DType::kF32 && problem.in_features % kUnit == 0 &&
         problem.in_features <= kMaxRoundedInputs && x_aligned && problem.weight_aligned &&
         problem.has_workspace;
}

// A scale of an output is one number, of all inputs.
bool fp8_takes(const GemmProblem& problem, const GpuFacts& gpu) {
  constexpr int64_t kUnit = 16;  // of cuBLASLt
  return rounds_to_fp8(problem, gpu) && problem.has_fp8_matmul && problem.group_ins >= problem.in_features &&
         problem.num_weight_rows() % kUnit == 0;
}

// A tile of outputs has one scale for each block of inputs.
bool fp8_blocks_take(const GemmProblem& problem, const GpuFacts& gpu) {
  return rounds_to_fp8(problem, gpu) && problem.group_ins == sm90::kFp8BlockInputs &&
         (problem.group_outs % sm90::kFp8TileOuts == 0 || problem.group_outs >= problem.num_weight_rows()) &&
         problem.num_weight_rows() % 8 == 0 && problem.out_dtype == problem.dtype && problem.out_aligned_8;
}

bool fp8_is_faster(const GemmProblem& problem, const GpuFacts&, const GemmTuning& tuning) {
  return problem.num_rows >= tuning.min_rows_of_fp8;
}

bool fp8_blocks_are_faster(const GemmProblem& problem, const GpuFacts&, const GemmTuning& tuning) {
  return problem.num_rows >= tuning.min_rows_of_fp8_blocks;
}

bool code_tiles_take(const GemmProblem& problem, const GpuFacts& gpu) {
  const bool whole_groups =
      problem.group_ins >= problem.in_features || problem.group_ins % sm90::kScaledInputs == 0;
  // Others take batch-invariant problems of more rows, in another order of sums.
  return gpu.runs_sm90a() && !problem.batch_invariant && fits_codes(problem) &&
         problem.format != WeightFormat::kMxFp4 && whole_groups && !problem.reorders &&
         problem.num_weight_rows() % sm90::kPairRows == 0;
}

bool code_tiles_are_faster(const GemmProblem& problem, const GpuFacts&, const GemmTuning& tuning) {
  return problem.num_rows <= tuning.max_rows_of_code_tiles;
}

// Scales are in the factors of int4, and those of whole rows of fp8.
bool scaled_codes_take(const GemmProblem& problem, const GpuFacts& gpu) {
  if (!code_tiles_take(problem, gpu) || problem.norm == GemmNorm::kDeferred ||
      problem.format == WeightFormat::kInt8)
    return false;
  if (problem.format == WeightFormat::kFp8) return problem.group_ins >= problem.in_features;
  return problem.group_ins == sm90::kScaledInputs && problem.scale_dtype == problem.dtype &&
         problem.in_features % sm90::kScaledStageInputs == 0 && problem.scales_aligned;
}

bool scaled_codes_are_faster(const GemmProblem& problem, const GpuFacts&, const GemmTuning& tuning) {
  const bool large = problem.num_weight_rows() * problem.in_features >= tuning.large_scaled_elements;
  return problem.num_rows >=
             (large ? tuning.min_rows_of_large_scaled_codes : tuning.min_rows_of_scaled_codes) &&
         problem.num_rows <= tuning.max_rows_of_scaled_codes;
}

bool quantised_takes(const GemmProblem& problem, const GpuFacts&) {
  const bool whole_blocks = has_four_bits(problem.format) || problem.group_ins >= problem.in_features ||
                            problem.group_ins % sm80::kEightBitBlockInputs == 0;
  return fits_codes(problem) && !problem.gated && whole_blocks &&
         (!problem.reorders || problem.has_workspace);
}

bool quantised_is_faster(const GemmProblem& problem, const GpuFacts&, const GemmTuning& tuning) {
  return problem.batch_invariant || !problem.has_workspace || problem.num_rows <= tuning.max_rows_of_codes;
}

bool widened_takes(const GemmProblem& problem, const GpuFacts&) {
  return fits_codes(problem) && !problem.gated && !problem.batch_invariant && problem.has_workspace;
}

// Of what the quantised GEMM does not take, or not faster.
bool widened_is_faster(const GemmProblem& problem, const GpuFacts&, const GemmTuning& tuning) {
  return problem.num_rows >= tuning.min_rows_of_widened;
}

bool cublaslt_takes(const GemmProblem& problem, const GpuFacts&) {
  return problem.format == WeightFormat::kPlain && !problem.batch_invariant && !problem.gated;
}

constexpr std::array kRows{
    GemmRow{GemmKernel::kGatedMlp, "gated-MLP GEMM (sm90)", gated_mlp_takes, gated_mlp_is_faster, never_norms,
            "SiLU in the product, and tiles that keep the SMs busy"},
    GemmRow{GemmKernel::kSwapAbSplitK, "swap-AB split-K GEMM (sm90)", split_k_takes, split_k_is_faster,
            split_k_norms, "rows and weight of a size where clusters share the inputs best"},
    GemmRow{GemmKernel::kSkinnyCodes, "skinny GEMM of codes", skinny_codes_take, skinny_codes_are_faster,
            skinny_norms, "few rows: bound by reading the weight in its own bits"},
    GemmRow{GemmKernel::kFp8, "fp8 by fp8 (cuBLASLt)", fp8_takes, fp8_is_faster, fp8_norms,
            "x may be rounded to fp8: half the time of tensor cores, and W in its own bits"},
    GemmRow{GemmKernel::kFp8Blocks, "fp8 by fp8 of blocks (sm90)", fp8_blocks_take, fp8_blocks_are_faster,
            fp8_norms, "x may be rounded to fp8: half the time of tensor cores, and W in its own bits"},
    GemmRow{
        GemmKernel::kScaledCodes, "swap-AB GEMM of scaled codes (sm90)", scaled_codes_take,
        scaled_codes_are_faster, never_norms,
        "reads the weight in its own bits, and no sums wait for scales: rows enough for the tensor cores"},
    GemmRow{GemmKernel::kSwapAbCodes, "swap-AB GEMM of codes (sm90)", code_tiles_take, code_tiles_are_faster,
            split_k_norms, "reads the weight in its own bits: not many rows"},
    GemmRow{GemmKernel::kLoneRow, "GEMM of a lone row (sm90)", lone_row_takes, lone_row_is_faster,
            never_norms,
            "one row, and a weight that registers hold: all of it is asked for before x is there"},
    GemmRow{GemmKernel::kSkinny, "skinny GEMM", skinny_takes, skinny_is_faster, skinny_norms,
            "few rows: bound by reading the weight"},
    GemmRow{GemmKernel::kInvariantSm90, "batch-invariant GEMM (sm90)", invariant_sm90_takes, always,
            never_norms, "batch-invariant, more rows than the skinny GEMM takes"},
    GemmRow{GemmKernel::kInvariantSm80, "batch-invariant GEMM (sm80)", invariant_takes, always, never_norms,
            "batch-invariant, more rows than the skinny GEMM takes"},
    GemmRow{GemmKernel::kQuantised, "quantised GEMM", quantised_takes, quantised_is_faster, never_norms,
            "reads the weight in its own bits: few rows, batch-invariant, or no workspace"},
    GemmRow{GemmKernel::kWidened, "widened weight", widened_takes, widened_is_faster, never_norms,
            "many rows: the weight as elements, tile after tile, costs less than its codes for each tile of "
            "rows"},
    GemmRow{GemmKernel::kCublasLt, "cuBLASLt", cublaslt_takes, always, never_norms,
            "nothing above takes it or is faster"},
    GemmRow{GemmKernel::kNaive, "naive GEMM",
            [](const GemmProblem& problem, const GpuFacts&) { return !problem.gated; }, always, never_norms,
            "no tensor-core kernel takes it, and it is batch-invariant or the weight quantised"},
    GemmRow{GemmKernel::kGemmThenSilu, "GEMM, then SiLU",
            [](const GemmProblem& problem, const GpuFacts&) { return problem.gated; }, always, never_norms,
            "nothing above does both or is faster"}};
static_assert(kRows.size() == kNumGemmKernels);

static_assert(in_order_of_kernels(kRows));

}  // namespace

const GemmTuning& gemm_tuning(const GpuFacts& gpu) { return tuning_of(kGemmTunings, gpu); }

std::span<const GemmRow> gemm_rows() { return kRows; }

const GemmRow& gemm_row(GemmKernel kernel) { return kRows[static_cast<size_t>(kernel)]; }

const GemmRow& choose(const GemmProblem& problem, const GpuFacts& gpu, const GemmTuning& tuning) {
  return first_row("dense layer", gemm_rows(), problem, gpu, tuning);
}

}  // namespace attend::kernels::cuda
