#include "attend/kernels/attention/cpu/attend_item.h"
#include "attend/kernels/attention/cpu/products/fp8_products.h"

namespace attend::kernels::cpu {

AttentionKernel attention_kernel_avx2(DType, DType kv) {
  AttentionKernel kernel;
  kernel.merge_token = &merge_token<Avx2>;
  visit_float_dtype(kv, [&]<class T>(TypeTag<T>) {
    if constexpr (sizeof(T) == 1)
      kernel.attend_item = &attend_fp8_item<T>;
    else
      kernel.attend_item = &attend_item<VectorProducts<F32Mac<Avx2>, T>>;
  });
  return kernel;
}

}  // namespace attend::kernels::cpu
