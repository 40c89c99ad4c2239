// Normalization and rotation of a head's elements, and their position in a cache.
#pragma once

#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/kv_store/cuda/store_kernel.h"
#include "attend/kernels/norm_rope/rotate.h"

namespace attend::kernels::cuda {

// Rotates a pair of elements.
__device__ inline float2 rotated(float first, float second, float cos, float sin) {
  const RotatedPair pair = rotate(first, second, cos, sin);
  return make_float2(pair.first, pair.second);
}

// Returns a pair's part of the sum of squares of a head's norm. Fixes which product is rounded, so that every
// kernel has the same bits.
__device__ inline float pair_squares(float first, float second) {
  return fmaf(second, second, __fmul_rn(first, first));
}

// Returns the factor of a normalized head, without the norm weights.
__device__ inline float norm_scale(float sum_of_squares, int head_dim, float eps) {
  return 1.0f / sqrtf(sum_of_squares / static_cast<float>(head_dim) + eps);
}

// Returns the token's slot in the cache; -1: not stored.
__device__ inline int load_slot(const StoreParams& store, int64_t token) {
  const int slot = store.slots[token];
  return slot >= 0 && store.slot_map != nullptr ? store.slot_map[slot] : slot;
}

// Cache row of a slot and head; null for slot -1.
struct CacheRow {
  void* data = nullptr;
  int64_t begin = 0;
  Element element = Element::kF32;
  float scale = 1.0f;

  __device__ CacheRow(const StoreParams& store, int kind, int slot, int head) {
    if (slot < 0) return;
    const StoreRows& rows = store.rows[kind];
    data = rows.to;
    begin = slot / store.page_size * rows.page_stride + slot % store.page_size * rows.token_stride +
            head * rows.head_stride;
    element = rows.to_element;
    scale = rows.scale;
  }
  __device__ void write(int d, float value) const {
    if (data != nullptr) store_element(data, begin + d, element, value / scale);
  }
  // Writes elements [d, d + 8); rows start at multiples of eight elements.
  __device__ void write_group(int d, float (&values)[kGroupElements]) const {
    if (data == nullptr) return;
    // The division about doubles the number of instructions, and is skipped for a scale of 1.
    if (scale != 1.0f) {
#pragma unroll
      for (int i = 0; i < kGroupElements; ++i) values[i] /= scale;
    }
    store_any_group(data, begin + d, element, values);
  }
};

}  // namespace attend::kernels::cuda
