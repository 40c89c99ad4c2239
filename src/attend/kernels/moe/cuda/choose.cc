#include "attend/kernels/moe/cuda/choose.h"

#include <algorithm>
#include <array>

#include "attend/base/math.h"
#include "attend/kernels/common/choose_row.h"
#include "attend/kernels/gemm/cuda/sm80/quantized_gemm_kernel.h"
#include "attend/kernels/gemm/cuda/sm80/skinny_gemm_kernel.h"
#include "attend/kernels/moe/cuda/common/moe_kernels.h"
#include "attend/kernels/moe/cuda/sm80/single_token_experts_kernel.h"
#include "attend/kernels/moe/cuda/sm80/skinny_experts_kernel.h"
#include "attend/kernels/moe/cuda/sm90/expert_tiles.h"

namespace attend::kernels::cuda {
namespace {

constexpr MoeTuning kH200MoeTuning{.single_token_max_tokens = 1,
                                   .skinny_max_rows = 3,
                                   .skinny_mxfp4_max_rows = 16,
                                   .tiles_min_rows = 16,
                                   .large_tiles_min_rows = 32,
                                   .sums_min_wave_efficiency = 0.9};

// Tuning of the H200, used for other GPUs until they are measured.
constexpr std::array kMoeTunings{GpuTuning<MoeTuning>{"H100, H200", 9, 0, kH200MoeTuning},
                                 GpuTuning<MoeTuning>{"Ampere, others", 8, 0, kH200MoeTuning}};

constexpr int64_t kMxFp4Inputs = 32;     // inputs per scale in the mxfp4 definition
constexpr int64_t kAlignedElements = 8;  // elements per aligned copy

bool always_faster(const MoeProblem&, const GpuFacts&, const MoeTuning&) { return true; }

// Returns true if tensor-core kernels support an expert weight with 16-bit x.
bool weight_fits_tensor_cores(const MoeWeight& weight) {
  const bool bytes = has_eight_bits(weight.format);
  const int64_t inputs_per_16_bytes = has_four_bits(weight.format) ? 32 : bytes ? 16 : kAlignedElements;
  const bool whole_blocks =
      !bytes || weight.group_ins >= weight.in_features || weight.group_ins % sm80::kEightBitBlockInputs == 0;
  return weight.in_features % inputs_per_16_bytes == 0 && whole_blocks && weight.aligned;
}

bool experts_fit_tensor_cores(const MoeProblem& problem) {
  return problem.dtype != DType::kF32 && problem.aligned && problem.hidden_size % kAlignedElements == 0 &&
         problem.intermediate_size % kAlignedElements == 0 && weight_fits_tensor_cores(problem.gate_up) &&
         weight_fits_tensor_cores(problem.down);
}

bool is_mxfp4(const MoeWeight& weight) {
  return weight.format == WeightFormat::kMxFp4 && weight.group_outs == 1 && weight.group_ins == kMxFp4Inputs;
}

bool is_plain(const MoeProblem& problem) { return problem.gate_up.format == WeightFormat::kPlain; }

// Returns true for plain weights, or mxfp4 with x in bf16: supported by the kernels for few rows and for many
// rows.
bool fits_own_tiles(const MoeProblem& problem) {
  if (!experts_fit_tensor_cores(problem) || problem.batch_invariant || problem.gate_up.reorders ||
      problem.down.reorders)
    return false;
  if (is_mxfp4(problem.gate_up) && is_mxfp4(problem.down)) return problem.dtype == DType::kBF16;
  return is_plain(problem) && problem.down.format == WeightFormat::kPlain;
}

bool single_token_supports(const MoeProblem& problem, const GpuFacts& gpu) {
  const int64_t num_outputs = problem.gated ? sm80::kSingleTokenOutputs : sm80::kSingleTokenPlainOutputs;
  if (problem.num_tokens > 1 || !fits_own_tiles(problem) || problem.top_k > sm80::kMaxSingleTokenTopK ||
      (!problem.gated && !is_plain(problem)) || problem.intermediate_size % num_outputs != 0 ||
      sm80::single_token_x_bytes(1, problem.hidden_size) > sm80::kMaxSingleTokenXBytes)
    return false;
  if (!is_mxfp4(problem.down))
    return sm80::single_token_x_bytes(problem.top_k, problem.intermediate_size) <=
           sm80::kMaxSingleTokenXBytes;
  // Scales are loaded in pairs.
  return problem.intermediate_size / kMxFp4Inputs % 2 == 0 && problem.down.scales_alignment >= 2 &&
         sm80::single_token_share(problem.top_k, problem.intermediate_size, problem.hidden_size, gpu.num_sms)
                 .shared_bytes <= sm80::kMaxSingleTokenDownBytes;
}
// Parts of a shared expert are computed like the token's experts, and use the unused half of their scratch.
bool single_token_adds_shared(const MoeProblem& problem) {
  const int64_t num_pairs = problem.top_k + problem.num_shared_parts;
  return problem.num_shared_parts > 0 && problem.num_shared_parts <= problem.top_k && is_plain(problem) &&
         !problem.alternating && num_pairs <= sm80::kMaxSingleTokenTopK &&
         sm80::single_token_x_bytes(num_pairs, problem.intermediate_size) <= sm80::kMaxSingleTokenXBytes;
}
bool single_token_is_faster(const MoeProblem& problem, const GpuFacts&, const MoeTuning& tuning) {
  return problem.num_tokens <= tuning.single_token_max_tokens;
}

// Kernels for few rows read the rows of tokens only in a gated product. Scales of mxfp4 are copied in words.
bool skinny_experts_support(const MoeProblem& problem, const GpuFacts& gpu) {
  return problem.gated && fits_own_tiles(problem) && problem.gate_up.scales_alignment >= 4 &&
         problem.down.scales_alignment >= 4 && gpu.shared_bytes >= sm80::kLargeSharedBytes &&
         problem.num_pairs() <= (is_plain(problem) ? sm80::kMaxSkinnyPairs : sm80::kMaxSkinnyMxFp4Pairs) &&
         problem.num_tokens <= sm80::kMaxSkinnyTokens && problem.hidden_size % sm80::kSkinnyOutputs == 0 &&
         problem.intermediate_size % sm80::kSkinnyOutputs == 0;
}
bool skinny_experts_are_faster(const MoeProblem& problem, const GpuFacts&, const MoeTuning& tuning) {
  const int64_t rows = is_plain(problem) ? tuning.skinny_max_rows : tuning.skinny_mxfp4_max_rows;
  return problem.num_pairs() <= rows * problem.num_experts;
}

static_assert(sm80::kMaxDirectBytes <= sm80::kLargeSharedBytes,
              "skinny_experts_support() requires kLargeSharedBytes");
bool direct_experts_support(const MoeProblem& problem, const GpuFacts& gpu) {
  return skinny_experts_support(problem, gpu) && is_mxfp4(problem.down) &&
         problem.hidden_size % sm80::kDirectInputs == 0 &&
         problem.intermediate_size % sm80::kDirectInputs == 0 &&
         std::max(problem.hidden_size, problem.intermediate_size) <= sm80::kMaxDirectInputs &&
         problem.gate_up.scales_alignment >= 16 && problem.down.scales_alignment >= 16;
}

// Requires multiples of 64 inputs. Faster than the grouped GEMM whenever there are more rows than the skinny
// experts support.
bool mxfp4_tiles_support(const MoeProblem& problem, const GpuFacts& gpu) {
  return gpu.runs_sm90a() && problem.gated && fits_own_tiles(problem) && !is_plain(problem) &&
         problem.hidden_size % sm90::kMxFp4TilesInputs == 0 &&
         problem.intermediate_size % sm90::kMxFp4TilesInputs == 0;
}

bool expert_tiles_support(const MoeProblem& problem, const GpuFacts& gpu) {
  return gpu.runs_sm90a() && fits_own_tiles(problem) && is_plain(problem) && !problem.alternating;
}
bool expert_tiles_are_faster(const MoeProblem& problem, const GpuFacts&, const MoeTuning& tuning) {
  return problem.num_pairs() >= tuning.tiles_min_rows * problem.num_experts;
}

bool grouped_gemm_supports(const MoeProblem& problem, const GpuFacts&) {
  return experts_fit_tensor_cores(problem) && is_plain(problem);
}
bool quantized_grouped_gemm_supports(const MoeProblem& problem, const GpuFacts&) {
  return experts_fit_tensor_cores(problem) && !is_plain(problem);
}
bool large_tiles_are_faster(const MoeProblem& problem, const GpuFacts&, const MoeTuning& tuning) {
  return problem.num_pairs() >= tuning.large_tiles_min_rows * problem.num_experts;
}

constexpr std::string_view kMeanRows = "mean rows per expert";

// tile_rows of the mxfp4 tiles is not used: the kernel finds its tiles itself.
constexpr std::array kMoeRows{MoeRow{MoeKernel::kSingleToken, 1, "single-token experts",
                                     single_token_supports, single_token_is_faster, "one token"},
                              MoeRow{MoeKernel::kDirect, sm80::kSkinnyRows, "direct experts",
                                     direct_experts_support, skinny_experts_are_faster, kMeanRows},
                              MoeRow{MoeKernel::kSkinny, sm80::kSkinnyRows, "skinny experts",
                                     skinny_experts_support, skinny_experts_are_faster, kMeanRows},
                              MoeRow{MoeKernel::kMxFp4Tiles, 1, "mxfp4 expert tiles (sm90)",
                                     mxfp4_tiles_support, always_faster, kMeanRows},
                              MoeRow{MoeKernel::kExpertTiles, sm90::kExpertTilesRows, "expert tiles (sm90)",
                                     expert_tiles_support, expert_tiles_are_faster, kMeanRows},
                              MoeRow{MoeKernel::kGrouped, kLargeTileRows, "grouped GEMM of 64 rows",
                                     grouped_gemm_supports, large_tiles_are_faster, kMeanRows},
                              MoeRow{MoeKernel::kGrouped, kSmallTileRows, "grouped GEMM of 16 rows",
                                     grouped_gemm_supports, always_faster, kMeanRows},
                              MoeRow{MoeKernel::kGrouped, kLargeTileRows, "quantized grouped GEMM of 64 rows",
                                     quantized_grouped_gemm_supports, large_tiles_are_faster, kMeanRows},
                              MoeRow{MoeKernel::kGrouped, kSmallTileRows, "quantized grouped GEMM of 16 rows",
                                     quantized_grouped_gemm_supports, always_faster, kMeanRows},
                              MoeRow{MoeKernel::kNaive, kNaiveTileRows, "naive grouped GEMM",
                                     [](const MoeProblem&, const GpuFacts&) { return true; }, always_faster,
                                     "float32, rows that are not multiples of 16 bytes, or 8-bit groups that "
                                     "are not multiples of 64 inputs"}};

bool keeps_sms_busy(int64_t num_ctas, int num_sms, double share) {
  return static_cast<double>(num_ctas) >=
         share * static_cast<double>(ceil_div<int64_t>(num_ctas, num_sms) * num_sms);
}

// Skinny experts sum the experts in the same launch if 16 outputs per CTA keep most SMs busy.
bool sums_experts(const MoeRow& row, const MoeProblem& problem, const GpuFacts& gpu,
                  const MoeTuning& tuning) {
  if (row.kernel == MoeKernel::kSingleToken) return true;
  return row.kernel == MoeKernel::kSkinny && keeps_sms_busy(problem.hidden_size / sm80::kSkinnyOutputs,
                                                            gpu.num_sms, tuning.sums_min_wave_efficiency);
}

}  // namespace

const MoeTuning& moe_tuning(const GpuFacts& gpu) { return find_tuning(kMoeTunings, gpu); }

std::span<const MoeRow> moe_rows() { return kMoeRows; }

MoeChoice choose(const MoeProblem& problem, const GpuFacts& gpu, const MoeTuning& tuning) {
  const MoeRow& row = first_row("experts", moe_rows(), problem, gpu, tuning);
  return {row, sums_experts(row, problem, gpu, tuning),
          row.kernel == MoeKernel::kSingleToken && single_token_adds_shared(problem)};
}

}  // namespace attend::kernels::cuda
