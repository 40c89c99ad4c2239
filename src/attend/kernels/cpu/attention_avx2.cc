#include "attend/kernels/cpu/attention_instances.h"
#include "attend/kernels/cpu/simd_avx2.h"

namespace attend::kernels::cpu {

AttentionKernel attention_kernel_avx2(DType, DType kv) { return instance<F32Mac<Avx2>>(kv); }

}  // namespace attend::kernels::cpu
