#include "attend/kernels/kv_store/batch_arrays.h"

#include <algorithm>

#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/kv_store/cuda/batch_arrays.h"
#include "attend/kernels/kv_store/key_places.h"

namespace attend::kernels {
namespace {

void derive_on_host(const BatchSource& source, const BatchArrays& arrays) {
  std::fill(arrays.new_slots.begin(), arrays.new_slots.end(), -1);
  for (int32_t r = 0; r < source.num_reqs; ++r) {
    const auto i = static_cast<size_t>(r);
    const int32_t seqlen_cached = length_of(source.seqlen_cached, r);
    const int32_t seqlen_new = length_of(source.seqlen_new, r);
    require(seqlen_cached >= 0 && seqlen_new >= 0 && seqlen_cached <= source.places.capacity - seqlen_new,
            "request ", r, ": ", seqlen_cached, " keys and ", seqlen_new, " new ones: there is room for ",
            source.places.capacity);
    if (!arrays.cu_seqlen_q.empty()) arrays.cu_seqlen_q[i] = tokens_before(source.seqlen_q, r);
    if (!arrays.seqlen_kv.empty()) arrays.seqlen_kv[i] = seqlen_cached + seqlen_new;
    if (!arrays.first_key.empty()) arrays.first_key[i] = first_key_of(source.places, r);
    if (arrays.new_slots.empty()) continue;
    const int32_t first = tokens_before(source.seqlen_new, r);
    for (int32_t j = 0; j < seqlen_new; ++j)
      arrays.new_slots[static_cast<size_t>(first + j)] = slot_of(source.places, r, seqlen_cached + j);
  }
  if (!arrays.cu_seqlen_q.empty())
    arrays.cu_seqlen_q.back() = tokens_before(source.seqlen_q, source.num_reqs);
  if (!arrays.first_key.empty()) arrays.first_key.back() = 0;
}

void check_sizes(const BatchSource& source, const BatchArrays& arrays) {
  const auto num_reqs = static_cast<size_t>(source.num_reqs);
  const auto check = [num_reqs](std::string_view name, View<int32_t> array, size_t size) {
    require(array.empty() || array.size() == size, name, " of ", array.size(), " entries: ", num_reqs,
            " requests have ", size);
  };
  check("cu_seqlen_q", arrays.cu_seqlen_q, num_reqs + 1);
  check("seqlen_kv", arrays.seqlen_kv, num_reqs);
  check("first_key", arrays.first_key, num_reqs + 1);
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
          "append_keys: slots of the store are not the new slots");
  if (const OnGpu gpu(stream); gpu) return cuda::append_keys(source, arrays, store, stream);
  derive_on_host(source, arrays);
  store_kv(store, stream);
}

}  // namespace attend::kernels
