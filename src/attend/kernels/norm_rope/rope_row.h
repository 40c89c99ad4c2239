// Computation of apply_rope_rows for one token and head, for host and device.
#pragma once

#include "attend/kernels/metadata/lengths.h"
#include "attend/kernels/norm_rope/rope.h"
#include "attend/kernels/norm_rope/rotate.h"

namespace attend::kernels {

ATTEND_HOST_DEVICE inline int32_t row_position(const Lengths& seqlens, const Lengths& first_position,
                                               bool same_position, int32_t request, int32_t token) {
  const int32_t first = get_length(first_position, request);
  return same_position ? first : first + token - tokens_before(seqlens, request);
}

ATTEND_HOST_DEVICE inline float load_row_scale(const RowScale& scale, int32_t request, int32_t head) {
  return scale.data == nullptr
             ? 1.0f
             : scale.data[request * scale.request_stride + head / scale.heads_per_scale * scale.head_stride];
}

ATTEND_HOST_DEVICE inline float row_factor(const RowScales& scales, int32_t request, int32_t head) {
  return load_row_scale(scales.first, request, head) * load_row_scale(scales.second, request, head);
}

// The element that is rotated with element d of a head's first 2 * num_pairs, the index of the pair's angle,
// and whether d is the first of the two.
struct RopePair {
  int32_t other, angle;
  bool is_first;
};
ATTEND_HOST_DEVICE inline RopePair rope_pair(int32_t d, int32_t num_pairs, bool interleaved) {
  if (interleaved) return {d ^ 1, d / 2, d % 2 == 0};
  const bool is_first = d < num_pairs;
  return {is_first ? d + num_pairs : d - num_pairs, is_first ? d : d - num_pairs, is_first};
}
ATTEND_HOST_DEVICE inline float rotated_element(float x, float other, const RopePair& pair, float cos,
                                                float sin) {
  return pair.is_first ? rotate(x, other, cos, sin).first : rotate(other, x, cos, sin).second;
}

}  // namespace attend::kernels
