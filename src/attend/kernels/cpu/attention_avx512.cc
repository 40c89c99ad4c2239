#include "attend/kernels/cpu/attention_instances.h"
#include "attend/kernels/cpu/simd_avx512.h"

namespace attend::kernels::cpu {

AttentionKernel attention_kernel_avx512(DType, DType kv) { return instance<F32Mac<Avx512>>(kv); }

}  // namespace attend::kernels::cpu
