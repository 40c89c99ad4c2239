// Prefill that copies 16-bit K and V row by row, a separate kernel (prefill.cuh).
#pragma once

#include <type_traits>

#include "attend/kernels/attention/cuda/sm90/prefill/prefill.cuh"

namespace attend::kernels::cuda::sm90 {

template <class T, int kHeadDimQk, int kHeadDimV>
void launch_prefill_by_rows(const PrefillParams& params, int num_ctas, void* stream) {
  constexpr Element kKv = std::is_same_v<T, __nv_bfloat16> ? Element::kBF16 : Element::kF16;
  launch_prefill_tile<T, kKv, PrefillTile<kHeadDimQk, kHeadDimV, false, PrefillKind::kByRows, false>>(
      params, num_ctas, stream);
}

}  // namespace attend::kernels::cuda::sm90
