// Elements of any dtype as float32, one or a few at a time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "attend/kernels/common/cuda/params.h"

namespace attend::kernels::cuda {

__device__ inline float from_fp8(__nv_fp8_storage_t bits, __nv_fp8_interpretation_t kind) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, kind)));
}

__device__ inline float load_element(const void* data, int64_t i, Element element) {
  switch (element) {
    case Element::kF32:
      return static_cast<const float*>(data)[i];
    case Element::kF16:
      return __half2float(static_cast<const __half*>(data)[i]);
    case Element::kBF16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
    case Element::kF8E4M3:
      return from_fp8(static_cast<const __nv_fp8_storage_t*>(data)[i], __NV_E4M3);
    case Element::kF8E5M2:
      return from_fp8(static_cast<const __nv_fp8_storage_t*>(data)[i], __NV_E5M2);
  }
  return 0.0f;
}

// Rounds to nearest even; fp8 saturates.
__device__ inline void store_element(void* data, int64_t i, Element element, float value) {
  switch (element) {
    case Element::kF32:
      static_cast<float*>(data)[i] = value;
      return;
    case Element::kF16:
      static_cast<__half*>(data)[i] = __float2half_rn(value);
      return;
    case Element::kBF16:
      static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(value);
      return;
    case Element::kF8E4M3:
      static_cast<__nv_fp8_storage_t*>(data)[i] = __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
      return;
    case Element::kF8E5M2:
      static_cast<__nv_fp8_storage_t*>(data)[i] = __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2);
      return;
  }
}

}  // namespace attend::kernels::cuda
