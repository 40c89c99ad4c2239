#include "attend/kernels/kv_store/batch_arrays.h"

#include <algorithm>

#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/kv_store/cuda/store.h"
#include "attend/kernels/kv_store/kv_locations.h"
#include "attend/kernels/metadata/lengths.h"

namespace attend::kernels {
namespace {

void check_request(const BatchSource& source, int32_t r) {
  const int32_t seqlen_cached = get_length(source.seqlen_cached, r);
  const int32_t seqlen_new = get_length(source.seqlen_new, r), num_rows = get_length(source.seqlen_q, r);
  require(seqlen_cached >= 0 && seqlen_new >= 0 && seqlen_cached <= source.locations.capacity - seqlen_new,
          "request ", r, ": ", seqlen_cached, " keys and ", seqlen_new, " new ones: there is room for ",
          source.locations.capacity);
  if (source.leftpad != nullptr)
    require(source.leftpad[r] >= 0 && source.leftpad[r] <= seqlen_cached + seqlen_new, "leftpad ",
            source.leftpad[r], " of request ", r, ": expected 0 to ", seqlen_cached + seqlen_new,
            ", the number of its keys");
  if (source.seqused_q != nullptr)
    require(source.seqused_q[r] >= 0 && source.seqused_q[r] <= num_rows, "seqused_q ", source.seqused_q[r],
            " of request ", r, ": expected 0 to ", num_rows, ", the number of its queries");
}

// Derives the entries of request r; with seqused_q, both entries.
void derive_request(const BatchSource& source, const BatchArrays& arrays, int32_t r) {
  const BatchRequest request = batch_request(source, r);
  const int32_t each = source.seqused_q == nullptr ? 1 : 2;
  for (int32_t part = 0; part < each; ++part) {
    const auto i = static_cast<size_t>(r * each + part);
    if (!arrays.cu_seqlen_q.empty())
      arrays.cu_seqlen_q[i] = request.first_query + (part == 0 ? 0 : request.num_queries);
    if (!arrays.seqlen_kv.empty()) arrays.seqlen_kv[i] = part == 0 ? request.seqlen_kv : 0;
    if (!arrays.first_key.empty()) arrays.first_key[i] = request.first_key;
  }
  if (arrays.key_slots.empty()) return;
  const size_t first = static_cast<size_t>(r) * static_cast<size_t>(source.locations.capacity);
  for (int32_t p = 0; p < request.seqlen_kv; ++p)
    arrays.key_slots[first + static_cast<size_t>(p)] = get_key_slot(source.locations, r, request.leftpad + p);
}

void derive_on_host(const BatchSource& source, const BatchArrays& arrays) {
  std::fill(arrays.new_slots.begin(), arrays.new_slots.end(), -1);
  for (int32_t r = 0; r < source.num_reqs; ++r) {
    check_request(source, r);
    derive_request(source, arrays, r);
    if (arrays.new_slots.empty()) continue;
    const int32_t first = tokens_before(source.seqlen_new, r), seqlen_new = get_length(source.seqlen_new, r);
    const int32_t seqlen_cached = get_length(source.seqlen_cached, r);
    for (int32_t j = 0; j < seqlen_new; ++j)
      arrays.new_slots[static_cast<size_t>(first + j)] = get_slot(source.locations, r, seqlen_cached + j);
  }
  if (!arrays.cu_seqlen_q.empty())
    arrays.cu_seqlen_q.back() = tokens_before(source.seqlen_q, source.num_reqs);
  if (!arrays.first_key.empty()) arrays.first_key.back() = 0;
}

void check_sizes(const BatchSource& source, const BatchArrays& arrays) {
  const auto num_reqs = static_cast<size_t>(num_batch_reqs(source));
  const auto check = [num_reqs](std::string_view name, View<int32_t> array, size_t size) {
    require(array.empty() || array.size() == size, name, " of ", array.size(), " entries: ", num_reqs,
            " requests need ", size);
  };
  check("cu_seqlen_q", arrays.cu_seqlen_q, num_reqs + 1);
  check("seqlen_kv", arrays.seqlen_kv, num_reqs);
  check("first_key", arrays.first_key, num_reqs + 1);
  const size_t num_slots =
      static_cast<size_t>(source.num_reqs) * static_cast<size_t>(source.locations.capacity);
  check("key_slots", arrays.key_slots, num_slots);
  require(arrays.key_slots.empty() || source.locations.table != nullptr,
          "key_slots: expected keys with a table");
}

}  // namespace

void derive_batch(const BatchSource& source, const BatchArrays& arrays, Stream& stream) {
  check_sizes(source, arrays);
  if (const OnGpu gpu(stream); gpu) return cuda::derive_batch(source, arrays, stream);
  derive_on_host(source, arrays);
}

void append_keys(const BatchSource& source, const BatchArrays& arrays, const StoreKvArgs& store,
                 Stream& stream) {
  check_sizes(source, arrays);
  check(store);
  require(store.to.slots.data() == arrays.new_slots.data() && store.to.slot_map == nullptr,
          "append_keys: expected store.to.slots to be new_slots, without a slot map");
  if (const OnGpu gpu(stream); gpu) return cuda::append_keys(source, arrays, store, stream);
  derive_on_host(source, arrays);
  store_kv(store, stream);
}

}  // namespace attend::kernels
