// Which kernel attends on a GPU: the table of candidates for attention and MLA, and the choice among them.
// Pure: for any GPU, on any machine.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "attend/kernels/attention/cuda/common/tile_config.h"
#include "attend/kernels/common/gpu_facts.h"
#include "attend/tensor/dtype.h"

namespace attend::kernels::cuda {

enum class AttentionKernel : uint8_t {
  kSm90Prefill,     // sm90/prefill.h
  kSm90Mla,         // sm90/mla.h
  kSm80LoneDecode,  // sm80/lone_decode.cuh
  kSm80Tiles,       // sm80/attention.cuh
  kSm80Mla,         // sm80/mla.cu
  kSm80ScaledMla,   // sm80/scaled_mla.cu
  kRows,            // sm80/row_attention.cu
};
inline constexpr int kNumAttentionKernels = 7;

// What a choice depends on.
struct AttentionProblem {
  bool mla = false;
  DType q_dtype = DType::kBF16;
  DType kv_dtype = DType::kBF16;  // MLA: of the latent row; kU8: scaled rows
  DType out_dtype = DType::kBF16;
  int head_dim_qk = 0, head_dim_v = 0;  // MLA: of the latent row, and of its first part
  bool positive_scale = true;
  bool aligned = true;      // rows of q, K, V and out begin at multiples of 16 bytes
  bool strides_fit = true;  // in 32 bits, as tiles are told them
  bool has_tree_mask = false;
  // The plan and its batch: at most so many rows of a request and KV head, in row tiles of tile_rows.
  int64_t num_rows = 0;
  int tile_rows = 0;
  int64_t num_row_tiles = 0, num_reqs = 0;
  int num_kv_heads = 1;
  int num_workers = 1;       // SMs that the plan is for
  bool shares_keys = false;  // the plan's CTAs divide keys as prefill does (prefill_plan.h)
  bool fixed_splits = false;
  bool never_splits = false;  // one kernel, then, whatever other requests there are
  bool inline_plan = false;   // CTAs derive their parts: of prefill those that verify
  // One token of a request whose plan has clusters for all keys of a work tile (PlanView::lone_clusters),
  // without window, chunk, cap, sinks, LSE or new keys.
  bool lone_decode = false;
};

// What decides between kernels that all take a problem: as timed on a GPU, data of that GPU.
struct AttentionTuning {
  int64_t min_rows_of_prefill;
  // With fewer work tiles for each SM, CTAs had better divide the keys: plans are made so.
  int64_t min_jobs_of_sm;
  // Whether queries of e4m3 are multiplied as they are where that is possible.
  bool prefills_e4m3;
  // Whether head dims above 64 and up to 96 have their own instance of prefill, instead of that of 128.
  bool prefills_96;
};
// What is known for a GPU: the H200's, until another is measured.
const AttentionTuning& attention_tuning(const GpuFacts& gpu);

struct AttentionRow {
  AttentionKernel kernel;
  HeadDims dims;  // of the instance; 0: it takes all
  std::string_view name;
  bool (*takes)(const AttentionProblem& problem, const GpuFacts& gpu);
  // Of problems that it takes: whether it is faster than what stands below it.
  bool (*is_faster)(const AttentionProblem& problem, const AttentionTuning& tuning);
  std::string_view why;  // it is chosen
};

// In the order of preference: of two instances that hold head dims, the cheaper one comes first.
std::span<const AttentionRow> attention_rows();

// The first row that takes the problem and is faster. There is one for every problem.
const AttentionRow& choose(const AttentionProblem& problem, const GpuFacts& gpu,
                           const AttentionTuning& tuning);
inline const AttentionRow& choose(const AttentionProblem& problem, const GpuFacts& gpu) {
  return choose(problem, gpu, attention_tuning(gpu));
}

}  // namespace attend::kernels::cuda
