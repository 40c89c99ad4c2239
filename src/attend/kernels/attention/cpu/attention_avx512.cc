#include "attend/kernels/attention/cpu/attend_item.h"
#include "attend/kernels/common/cpu/simd_avx512.h"

namespace attend::kernels::cpu {

AttentionKernel attention_kernel_avx512(DType, DType kv) { return instance<F32Mac<Avx512>>(kv); }

}  // namespace attend::kernels::cpu
