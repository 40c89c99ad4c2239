#include "attend/kernels/attention/cpu/attend_item.h"
#include "attend/kernels/attention/cpu/products/mac_fp8.h"
#include "attend/kernels/common/cpu/mac_bf16.h"

namespace attend::kernels::cpu {
namespace {

// M: policy for rows of whole blocks of fp8.
template <class M, class T>
void attend_fp8_item(const AttentionProblem& problem, const WorkItem& item, int kv_head,
                     TileScratch& scratch) {
  if (problem.k.dim % kFp8Block == 0 && problem.v.dim % kFp8Block == 0)
    return attend_item<VectorProducts<M, T>>(problem, item, kv_head, scratch);
  if constexpr (M::kElements == 2)
    return attend_item<VectorProducts<Bf16Mac, T>>(problem, item, kv_head, scratch);
  attention_kernel_avx512(problem.q_dtype, problem.kv_dtype).attend_item(problem, item, kv_head, scratch);
}

template <class M>
AttentionKernel fp8_kernel(DType kv) {
  AttentionKernel kernel;
  kernel.merge_token = &merge_token<Avx512>;
  kernel.attend_item = kv == DType::kF8E4M3 ? &attend_fp8_item<M, F8E4M3> : &attend_fp8_item<M, F8E5M2>;
  return kernel;
}

}  // namespace

AttentionKernel attention_kernel_avx512bf16(DType q, DType kv) {
  if (is_fp8(kv)) return q == DType::kBF16 ? fp8_kernel<Bf16Fp8Mac>(kv) : fp8_kernel<F32Fp8Mac>(kv);
  if (q != DType::kBF16 || kv != DType::kBF16) return attention_kernel_avx512(q, kv);
  AttentionKernel kernel;
  kernel.merge_token = &merge_token<Avx512>;
  kernel.attend_item = &attend_item<VectorProducts<Bf16Mac, BF16>>;
  return kernel;
}

}  // namespace attend::kernels::cpu
