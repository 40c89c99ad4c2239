// Location of the keys of a request, for host and device.
#pragma once

#include "attend/kernels/kv_store/batch_arrays.h"
#include "attend/kernels/metadata/lengths.h"

namespace attend::kernels {

// Returns the first key of a request without a table.
ATTEND_HOST_DEVICE inline int32_t first_key_index(const KvLocations& locations, int32_t r) {
  if (locations.begins != nullptr) return locations.begins[r];
  return (locations.rows != nullptr ? locations.rows[r] : r) * locations.row_spacing;
}

// Returns the token slot of position `p`, which must be within the capacity.
ATTEND_HOST_DEVICE inline int32_t get_slot(const KvLocations& locations, int32_t r, int32_t p) {
  if (locations.table == nullptr) return first_key_index(locations, r) + p;
  const int32_t page = locations.table[r * locations.table_stride + p / locations.page_size];
  return page * locations.page_size + p % locations.page_size;
}

// Derived values of one request of a batch.
struct BatchRequest {
  int32_t first_query, num_rows, num_queries;
  int32_t leftpad, first_key, seqlen_kv;
};
ATTEND_HOST_DEVICE inline BatchRequest batch_request(const BatchSource& source, int32_t r) {
  const auto within = [](int32_t x, int32_t max_value) {
    return x < 0 || max_value < 0 ? 0 : x < max_value ? x : max_value;
  };
  BatchRequest request{};
  request.first_query = tokens_before(source.seqlen_q, r);
  request.num_rows = request.num_queries = get_length(source.seqlen_q, r);
  if (source.seqused_q != nullptr) request.num_queries = within(source.seqused_q[r], request.num_rows);
  const int32_t num_keys = get_length(source.seqlen_cached, r) + get_length(source.seqlen_new, r);
  request.leftpad = source.leftpad == nullptr ? 0 : within(source.leftpad[r], num_keys);
  request.seqlen_kv = num_keys - request.leftpad;
  request.first_key = source.locations.table == nullptr
                          ? first_key_index(source.locations, r) + request.leftpad
                          : static_cast<int32_t>(r * source.locations.table_stride);
  return request;
}

// Returns the token of memory of position `p` of a request. Requires a table and a position within the
// capacity.
ATTEND_HOST_DEVICE inline int32_t get_key_slot(const KvLocations& locations, int32_t r, int32_t p) {
  const int32_t page = locations.table[r * locations.table_stride + p / locations.page_size];
  return page * locations.page_spacing + p % locations.page_size;
}

}  // namespace attend::kernels
