#include "attend/kernels/attention/cpu/attend_item.h"
#include "attend/kernels/common/cpu/simd_portable.h"

namespace attend::kernels::cpu {

AttentionKernel attention_kernel_portable(DType, DType kv) { return instance<F32Mac<Portable>>(kv); }

}  // namespace attend::kernels::cpu
