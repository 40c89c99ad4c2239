// Interface between the driver (attention.cc) and the CPU attention kernel of one instruction set.
#pragma once

#include "attend/kernels/attention/cpu/attention_problem.h"
#include "attend/kernels/attention/cpu/tile_scratch.h"
#include "attend/kernels/common/cpu/isa.h"

namespace attend::kernels::cpu {

struct AttentionKernel {
  // Attends the tokens of `item` for the query heads of one KV head. Writes `out` and `lse`, or the item's
  // partial results.
  void (*attend_item)(const AttentionProblem& problem, const WorkItem& item, int kv_head,
                      TileScratch& scratch) = nullptr;
  // Merges the partial results of one token from left to right, and writes `out` and `lse`. `row`: [v.dim].
  void (*merge_token)(const AttentionProblem& problem, const MergeItem& item, float* row) = nullptr;
};

// One implementation per instruction set. `q`: f32, f16, bf16; `kv`: also fp8.
AttentionKernel attention_kernel_portable(DType q, DType kv);
AttentionKernel attention_kernel_avx2(DType q, DType kv);
AttentionKernel attention_kernel_avx512(DType q, DType kv);
AttentionKernel attention_kernel_avx512bf16(DType q, DType kv);
AttentionKernel attention_kernel_amx(DType q, DType kv);

AttentionKernel attention_kernel(Isa isa, DType q, DType kv);

// Products that attention_kernel_amx() uses for an item with this number of rows.
enum class AmxPath : uint8_t {
  kTiles,
  kSkinny,   // tiles with fp8 K/V for few rows
  kVectors,  // same as attention_kernel_avx512()
};
AmxPath amx_path(const AttentionProblem& problem, int num_rows);

}  // namespace attend::kernels::cpu
