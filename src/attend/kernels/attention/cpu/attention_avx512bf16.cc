#include "attend/kernels/attention/cpu/attention_instances.h"
#include "attend/kernels/common/cpu/mac_bf16.h"

namespace attend::kernels::cpu {

AttentionKernel attention_kernel_avx512bf16(DType q, DType kv) {
  if (q != DType::kBF16 || kv == DType::kF32 || kv == DType::kF16) return attention_kernel_avx512(q, kv);
  AttentionKernel kernel;
  kernel.merge_token = &merge_token<Avx512>;
  if (kv == DType::kBF16) kernel.attend_item = &attend_item<VectorProducts<Bf16Mac, BF16>>;
  if (kv == DType::kF8E4M3) kernel.attend_item = &attend_item<VectorProducts<Bf16Mac, F8E4M3>>;
  if (kv == DType::kF8E5M2) kernel.attend_item = &attend_item<VectorProducts<Bf16Mac, F8E5M2>>;
  return kernel;
}

}  // namespace attend::kernels::cpu
