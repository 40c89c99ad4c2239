#include "attend/kernels/attention/cpu/attend_item.h"
#include "attend/kernels/attention/cpu/products/amx_products.h"
#include "attend/kernels/attention/cpu/products/amx_skinny_fp8.h"

namespace attend::kernels::cpu {
namespace {

template <class Q, class T>
void attend_item_amx(const AttentionProblem& problem, const WorkItem& item, int kv_head,
                     TileScratch& scratch) {
  const int num_rows = (item.q_end - item.q_begin) * problem.group();
  const AmxPath path = amx_path(problem, num_rows);
  if (path == AmxPath::kTiles) return attend_item<AmxProducts<Q, T>>(problem, item, kv_head, scratch);
  if constexpr (sizeof(T) == 1)
    if (path == AmxPath::kSkinny) return attend_item<AmxSkinnyFp8<Q, T>>(problem, item, kv_head, scratch);
  attention_kernel_avx512(problem.q_dtype, problem.kv_dtype).attend_item(problem, item, kv_head, scratch);
}

}  // namespace

// With few rows most of a tile is empty, and only fp8 benefits. Other dtypes would finish in less time than
// packing K and V takes. Under fixed splits a row's bits must not depend on the number of rows.
AmxPath amx_path(const AttentionProblem& problem, int num_rows) {
  if (problem.kv_dtype == DType::kF32) return AmxPath::kVectors;
  if (num_rows > kMaxSkinnyAmxRows || problem.split_tokens > 0) return AmxPath::kTiles;
  return is_fp8(problem.kv_dtype) && AmxSkinnyFp8<float, F8E4M3>::serves(problem) ? AmxPath::kSkinny
                                                                                  : AmxPath::kVectors;
}

AttentionKernel attention_kernel_amx(DType q, DType kv) {
  // A float32 K or V would have three parts, which need nine products.
  if (kv == DType::kF32) return attention_kernel_avx512(q, kv);
  AttentionKernel kernel;
  kernel.merge_token = &merge_token<Avx512>;
  const auto choose = [&]<class Q>(TypeTag<Q>) {
    if (kv == DType::kF16) kernel.attend_item = &attend_item_amx<Q, F16>;
    if (kv == DType::kBF16) kernel.attend_item = &attend_item_amx<Q, BF16>;
    if (kv == DType::kF8E4M3) kernel.attend_item = &attend_item_amx<Q, F8E4M3>;
    if (kv == DType::kF8E5M2) kernel.attend_item = &attend_item_amx<Q, F8E5M2>;
  };
  if (q == DType::kF32) choose(TypeTag<float>{});
  if (q == DType::kF16) choose(TypeTag<F16>{});
  if (q == DType::kBF16) choose(TypeTag<BF16>{});
  return kernel;
}

}  // namespace attend::kernels::cpu
