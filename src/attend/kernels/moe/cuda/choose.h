// Which kernels multiply the experts of a mixture on a GPU: the table of candidates, and the choice among
// them. Pure: for any GPU, on any machine.
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
  kMxFp4Tiles,   // sm90/expert_tiles.h, of mxfp4
  kExpertTiles,  // sm90/expert_tiles.h
  kGrouped,      // common/moe_kernels.h, plain or quantized
  kNaive,        // common/moe_kernels.h
};

// One of the two products' weights, of all experts.
struct MoeWeight {
  WeightFormat format = WeightFormat::kPlain;
  int64_t in_features = 0;
  int64_t group_outs = 1, group_ins = 0;  // quantized: outputs and inputs that share a scale
  bool aligned = true;                    // rows begin at multiples of 16 bytes
  int scales_alignment = 16;  // scales begin at a multiple of so many bytes: a power of two up to 16
  bool reorders = false;      // columns are not in the order of inputs
};

// What a choice depends on.
struct MoeProblem {
  int64_t num_tokens = 0, num_experts = 0, top_k = 0;
  int64_t hidden_size = 0, intermediate_size = 0;  // intermediate_size: of one expert
  DType dtype = DType::kBF16;                      // of x and out
  bool aligned = true;                             // rows of x and out begin at multiples of 16 bytes
  bool alternating = false;                        // rows of gate and up alternate
  bool batch_invariant = false;
  MoeWeight gate_up = {}, down = {};

  int64_t num_pairs() const { return num_tokens * top_k; }
};

// What was timed on a GPU. Rows are those of an expert in the mean.
struct MoeTuning {
  int64_t max_tokens_of_lone;  // tokens, that need no sorting; 0: off
  // Up to which reading W for 8 rows is all that counts; of mxfp4, which has nothing between those and tiles.
  int64_t max_rows_of_skinny, max_rows_of_skinny_mxfp4;
  int64_t min_rows_of_tiles;  // from which on tiles of 128 are the fastest (sm90)
  // From which on tiles of 64 read W less often than they multiply rows that are not there (sm80).
  int64_t min_rows_of_large_tiles;
  // Share of the SMs that the second product's CTAs keep busy where it adds up the experts of a token.
  double min_wave_efficiency_of_sums;
};
// The record of the GPU's compute capability, or the default.
const MoeTuning& moe_tuning(const GpuFacts& gpu);

struct MoeRow {
  MoeKernel kernel;
  int tile_rows;  // that rows of an expert are cut into
  std::string_view name;
  bool (*takes)(const MoeProblem& problem, const GpuFacts& gpu);
  // Of problems that it takes: whether it is faster than what stands below it.
  bool (*is_faster)(const MoeProblem& problem, const GpuFacts& gpu, const MoeTuning& tuning);
  std::string_view why;  // it is chosen
};

// In the order of preference.
std::span<const MoeRow> moe_rows();

struct MoeChoice {
  const MoeRow& row;
  bool sums_experts;  // the second product adds up a token's experts; else a launch after it does
};
// The first row that takes the problem and is faster. There is one for every problem.
MoeChoice choose(const MoeProblem& problem, const GpuFacts& gpu, const MoeTuning& tuning);
inline MoeChoice choose(const MoeProblem& problem, const GpuFacts& gpu) {
  return choose(problem, gpu, moe_tuning(gpu));
}

}  // namespace attend::kernels::cuda
