#include "attend/kernels/attention/cpu/attention_instances.h"
#include "attend/kernels/common/cpu/simd_portable.h"

namespace attend::kernels::cpu {

AttentionKernel attention_kernel_portable(DType, DType kv) { return instance<F32Mac<Portable>>(kv); }

}  // namespace attend::kernels::cpu
