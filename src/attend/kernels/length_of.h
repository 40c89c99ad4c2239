// What lengths say of one request or one token, and where keys lie, on either device.
#pragma once

#include "attend/kernels/batch_arrays.h"
#include "attend/kernels/page_of.h"

namespace attend::kernels {

ATTEND_HOST_DEVICE inline int32_t length_of(const Lengths& lengths, int32_t r) {
  if (lengths.cu != nullptr) return lengths.cu[r + 1] - lengths.cu[r];
  return lengths.each != nullptr ? lengths.each[r] : lengths.all;
}

// Tokens of the requests before `r`; `lengths` has `cu` or `all`.
ATTEND_HOST_DEVICE inline int32_t tokens_before(const Lengths& lengths, int32_t r) {
  return lengths.cu != nullptr ? lengths.cu[r] : r * lengths.all;
}

// The last of `num` runs, which begin at begins[0] <= begins[1] <= ..., that begins at `x` or before; 0 where
// none does.
ATTEND_HOST_DEVICE inline int32_t last_begun(const int32_t* begins, int32_t num, int32_t x) {
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

// The request of a token; num_reqs for padding. `lengths` has `cu` or `all`.
ATTEND_HOST_DEVICE inline int32_t request_of(const Lengths& lengths, int32_t num_reqs, int32_t token) {
  if (lengths.cu == nullptr) {
    const int32_t request = token / (lengths.all > 0 ? lengths.all : 1);
    return request < num_reqs ? request : num_reqs;
  }
  return last_begun(lengths.cu, num_reqs + 1, token);
}

ATTEND_HOST_DEVICE inline int32_t first_key_of(const KeyPlaces& places, int32_t r) {
  return (places.rows != nullptr ? places.rows[r] : r) * places.row_spacing;
}

// The token slot of position `p`, which there is room for.
ATTEND_HOST_DEVICE inline int32_t slot_of(const KeyPlaces& places, int32_t r, int32_t p) {
  if (places.table == nullptr) return first_key_of(places, r) + p;
  const int32_t page = places.table[r * places.table_stride + p / places.page_size];
  return page * places.page_size + p % places.page_size;
}

}  // namespace attend::kernels
