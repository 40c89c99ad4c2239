// Selects the kernels for the experts of an MoE layer on a GPU from a table of candidates. Pure: works for
// any GPU on any machine.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "attend/kernels/common/gpu_facts.h"
#include "attend/tensor/dtype.h"
#include "attend/tensor/weight.h"

namespace attend::kernels::cuda {

enum class MoeKernel : uint8_t {
  kSingleToken,  // sm80/single_token_experts_kernel.h
  kDirect,       // sm80/direct_experts_kernel.h
  kSkinny,       // sm80/skinny_experts_kernel.h
  kMxFp4Tiles,   // sm90/expert_tiles.h, mxfp4
  kExpertTiles,  // sm90/expert_tiles.h
  kGrouped,      // common/moe_kernels.h, plain or quantized
  kNaive,        // common/moe_kernels.h
};

// Weight of one of the two products, for all experts.
struct MoeWeight {
  WeightFormat format = WeightFormat::kPlain;
  int64_t in_features = 0;
  int64_t group_outs = 1, group_ins = 0;  // quantized: outputs and inputs that share a scale
  bool aligned = true;                    // rows start at multiples of 16 bytes
  int scales_alignment = 16;              // alignment of scales in bytes: a power of two up to 16
  bool reorders = false;                  // columns are not in the order of inputs
};

// Properties that the choice depends on.
struct MoeProblem {
  int64_t num_tokens = 0, num_experts = 0, top_k = 0;
  int64_t hidden_size = 0, intermediate_size = 0;  // intermediate_size: per expert
  DType dtype = DType::kBF16;                      // dtype of x and out
  bool aligned = true;                             // rows of x and out start at multiples of 16 bytes
  bool alternating = false;                        // rows of gate and up alternate
  bool gated = true;                               // false: the first product has no gate rows
  bool batch_invariant = false;
  MoeWeight gate_up = {}, down = {};
  // Shared expert to be added: its intermediate size, as a multiple of that of the others; 0: none, or a
  // size, format or alignment that no kernel adds.
  int64_t num_shared_parts = 0;

  int64_t num_pairs() const { return num_tokens * top_k; }
};

// Thresholds measured on a GPU. Rows are mean rows per expert.
struct MoeTuning {
  int64_t
      single_token_max_tokens;  // maximum tokens for the single-token kernel, which needs no sorting; 0: off
  // Maximum rows for the skinny experts, for which reading W for 8 rows dominates; and for mxfp4, which has
  // no kernel between those and tiles.
  int64_t skinny_max_rows, skinny_mxfp4_max_rows;
  int64_t tiles_min_rows;  // minimum rows for tiles of 128 rows to be the fastest (sm90)
  // Minimum rows for tiles of 64 rows: they read W less often, which outweighs multiplying padding rows
  // (sm80).
  int64_t large_tiles_min_rows;
  // Minimum fraction of SMs that the second product's CTAs keep busy when it also sums the experts of a
  // token.
  double sums_min_wave_efficiency;
};
// Returns the tuning for the GPU's compute capability, or the default.
const MoeTuning& moe_tuning(const GpuFacts& gpu);

struct MoeRow {
  MoeKernel kernel;
  int tile_rows;  // rows per tile of an expert
  std::string_view name;
  bool (*supports)(const MoeProblem& problem, const GpuFacts& gpu);
  // For supported problems: true if it is faster than the rows below it.
  bool (*is_faster)(const MoeProblem& problem, const GpuFacts& gpu, const MoeTuning& tuning);
  std::string_view why;  // reason for choosing it
};

// Candidates in the order of preference.
std::span<const MoeRow> moe_rows();

struct MoeChoice {
  const MoeRow& row;
  bool sums_experts;  // the second product sums a token's experts; otherwise a separate launch does
  bool adds_shared;   // the launches also compute the shared expert
};
// Returns the first row that supports the problem and is faster. Every problem has one.
MoeChoice choose(const MoeProblem& problem, const GpuFacts& gpu, const MoeTuning& tuning);
inline MoeChoice choose(const MoeProblem& problem, const GpuFacts& gpu) {
  return choose(problem, gpu, moe_tuning(gpu));
}

}  // namespace attend::kernels::cuda
