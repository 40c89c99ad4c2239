// Eight neighboring elements of a row as float32: one or two 16-byte accesses, or one of 8 bytes for fp8.
#pragma once

#include "attend/kernels/common/cuda/element.cuh"

namespace attend::kernels::cuda {

inline constexpr int kGroupElements = 8;

template <class T>
__device__ inline void convert_16_bit_group(const uint4& bits, float (&group)[kGroupElements]) {
  const T* const elements = reinterpret_cast<const T*>(&bits);
#pragma unroll
  for (int i = 0; i < kGroupElements; ++i) group[i] = static_cast<float>(elements[i]);
}

template <class T>
__device__ inline void load_16_bit_group(const T* from, float (&group)[kGroupElements]) {
  convert_16_bit_group<T>(*reinterpret_cast<const uint4*>(from), group);
}

// Loads elements [i, i + 8); `i` is at a multiple of 16 bytes.
__device__ inline void load_group(const void* data, int64_t i, Element element,
                                  float (&group)[kGroupElements]) {
  if (element == Element::kBF16) return load_16_bit_group(static_cast<const __nv_bfloat16*>(data) + i, group);
  if (element == Element::kF16) return load_16_bit_group(static_cast<const __half*>(data) + i, group);
  const auto* const from = reinterpret_cast<const float4*>(static_cast<const float*>(data) + i);
  const float4 low = from[0], high = from[1];
  const float values[kGroupElements] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int j = 0; j < kGroupElements; ++j) group[j] = values[j];
}

template <class T>
__device__ inline void store_16_bit_group(T* to, const float (&group)[kGroupElements]) {
  uint4 bits;
  T* const elements = reinterpret_cast<T*>(&bits);
#pragma unroll
  for (int i = 0; i < kGroupElements; ++i) elements[i] = T(group[i]);
  *reinterpret_cast<uint4*>(to) = bits;
}

// Rounds to nearest even.
__device__ inline void store_group(void* data, int64_t i, Element element,
                                   const float (&group)[kGroupElements]) {
  if (element == Element::kBF16) return store_16_bit_group(static_cast<__nv_bfloat16*>(data) + i, group);
  if (element == Element::kF16) return store_16_bit_group(static_cast<__half*>(data) + i, group);
  auto* const to = reinterpret_cast<float4*>(static_cast<float*>(data) + i);
  to[0] = make_float4(group[0], group[1], group[2], group[3]);
  to[1] = make_float4(group[4], group[5], group[6], group[7]);
}

// Like store_group, for any element type; fp8 saturates, and `i` is at a multiple of 8 bytes there.
__device__ inline void store_any_group(void* data, int64_t i, Element element,
                                       const float (&group)[kGroupElements]) {
  if (element != Element::kF8E4M3 && element != Element::kF8E5M2) return store_group(data, i, element, group);
  uint2 bits;
#pragma unroll
  for (int j = 0; j < kGroupElements; ++j) store_element(&bits, j, element, group[j]);
  *reinterpret_cast<uint2*>(static_cast<__nv_fp8_storage_t*>(data) + i) = bits;
}

// Loads the first `count` elements one by one; the rest of the group is 0.
__device__ inline void load_some(const void* data, int64_t i, Element element, int count,
                                 float (&group)[kGroupElements]) {
#pragma unroll
  for (int j = 0; j < kGroupElements; ++j) group[j] = j < count ? load_element(data, i + j, element) : 0.0f;
}
__device__ inline void store_some(void* data, int64_t i, Element element, int count,
                                  const float (&group)[kGroupElements]) {
#pragma unroll
  for (int j = 0; j < kGroupElements; ++j)
    if (j < count) store_element(data, i + j, element, group[j]);
}

// Returns `value` after rounding to this element type.
__device__ inline float rounded(float value, Element element) {
  if (element == Element::kBF16) return static_cast<float>(__float2bfloat16_rn(value));
  if (element == Element::kF16) return static_cast<float>(__float2half_rn(value));
  return value;
}

}  // namespace attend::kernels::cuda
