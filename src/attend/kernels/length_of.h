// What derive_batch computes for one request or one new token, on either device.
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
