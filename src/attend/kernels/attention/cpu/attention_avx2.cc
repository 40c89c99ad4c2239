#include "attend/kernels/attention/cpu/attention_instances.h"
#include "attend/kernels/common/cpu/simd_avx2.h"

namespace attend::kernels::cpu {

AttentionKernel attention_kernel_avx2(DType, DType kv) { return instance<F32Mac<Avx2>>(kv); }

}  // namespace attend::kernels::cpu
