// Which instances of the attention kernel an instruction set has.
#pragma once

#include "attend/kernels/attention/cpu/attend_item.h"
#include "attend/kernels/attention/cpu/products/vector_products.h"

namespace attend::kernels::cpu {
namespace {

template <class M>
AttentionKernel instance(DType kv) {
  AttentionKernel kernel;
  kernel.merge_token = &merge_token<typename M::Simd>;
  visit_float_dtype(kv,
                    [&]<class T>(TypeTag<T>) { kernel.attend_item = &attend_item<VectorProducts<M, T>>; });
  return kernel;
}

}  // namespace
}  // namespace attend::kernels::cpu
