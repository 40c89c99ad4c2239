// Where the keys of a request lie, on either device.
#pragma once

#include "attend/kernels/kv_store/batch_arrays.h"

namespace attend::kernels {

// Of a request without a table.
ATTEND_HOST_DEVICE inline int32_t first_key_of(const KeyPlaces& places, int32_t r) {
  if (places.begins != nullptr) return places.begins[r];
  return (places.rows != nullptr ? places.rows[r] : r) * places.row_spacing;
}

// The token slot of position `p`, which there is room for.
ATTEND_HOST_DEVICE inline int32_t slot_of(const KeyPlaces& places, int32_t r, int32_t p) {
  if (places.table == nullptr) return first_key_of(places, r) + p;
  const int32_t page = places.table[r * places.table_stride + p / places.page_size];
  return page * places.page_size + p % places.page_size;
}

// What a batch says of a request of its source.
struct BatchRequest {
  int32_t first_query, num_rows, num_queries;
  int32_t leftpad, first_key, seqlen_kv;
};
ATTEND_HOST_DEVICE inline BatchRequest batch_request(const BatchSource& source, int32_t r) {
  const auto within = [](int32_t x, int32_t most) { return x < 0 || most < 0 ? 0 : x < most ? x : most; };
  BatchRequest request{};
  request.first_query = tokens_before(source.seqlen_q, r);
  request.num_rows = request.num_queries = length_of(source.seqlen_q, r);
  if (source.seqused_q != nullptr) request.num_queries = within(source.seqused_q[r], request.num_rows);
  const int32_t num_keys = length_of(source.seqlen_cached, r) + length_of(source.seqlen_new, r);
  request.leftpad = source.leftpad == nullptr ? 0 : within(source.leftpad[r], num_keys);
  request.seqlen_kv = num_keys - request.leftpad;
  request.first_key = source.places.table == nullptr ? first_key_of(source.places, r) + request.leftpad
                                                     : static_cast<int32_t>(r * source.places.table_stride);
  return request;
}

// Token of memory where position `p` of a request lies, which there is room for and a table.
ATTEND_HOST_DEVICE inline int32_t key_slot_of(const KeyPlaces& places, int32_t r, int32_t p) {
  const int32_t page = places.table[r * places.table_stride + p / places.page_size];
  return page * places.page_spacing + p % places.page_size;
}

}  // namespace attend::kernels
