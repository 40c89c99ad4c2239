// Length of one request and position of one token, by Lengths, on either device.
#pragma once

#include <cstdint>

#include "attend/kernels/common/host_device.h"
#include "attend/kernels/metadata/kv_index.h"

namespace attend::kernels {

ATTEND_HOST_DEVICE inline int32_t get_length(const Lengths& lengths, int32_t r) {
  if (lengths.cu != nullptr) return lengths.cu[r + 1] - lengths.cu[r];
  return lengths.per_request != nullptr ? lengths.per_request[r] : lengths.uniform;
}

// Returns the number of tokens of the requests before `r`; requires `cu` or `uniform`.
ATTEND_HOST_DEVICE inline int32_t tokens_before(const Lengths& lengths, int32_t r) {
  return lengths.cu != nullptr ? lengths.cu[r] : r * lengths.uniform;
}

// Returns the index of the last of `num` ranges, with begins[0] <= begins[1] <= ..., that starts at or before
// `x`; 0 if there is none.
ATTEND_HOST_DEVICE inline int32_t last_begin(const int32_t* begins, int32_t num, int32_t x) {
  int32_t low = 0, high = num;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    if (begins[middle] <= x)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// Returns the request of a token, or num_reqs for padding; requires `cu` or `uniform`.
ATTEND_HOST_DEVICE inline int32_t find_request(const Lengths& lengths, int32_t num_reqs, int32_t token) {
  if (lengths.cu == nullptr) {
    const int32_t request = token / (lengths.uniform > 0 ? lengths.uniform : 1);
    return request < num_reqs ? request : num_reqs;
  }
  return last_begin(lengths.cu, num_reqs + 1, token);
}

}  // namespace attend::kernels
