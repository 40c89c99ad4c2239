// Where the keys of a request lie, on either device.
#pragma once

#include "attend/kernels/kv_store/batch_arrays.h"

namespace attend::kernels {

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
