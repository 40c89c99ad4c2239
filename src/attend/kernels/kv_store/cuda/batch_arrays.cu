#include <algorithm>

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/kv_store/cuda/store.h"
#include "attend/kernels/kv_store/cuda/store_kernel.h"
#include "attend/kernels/kv_store/cuda/store_rows.cuh"
#include "attend/kernels/kv_store/kv_locations.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 256;

struct BatchArraysParams {
  BatchSource source;
  int32_t* cu_seqlen_q;  // null: not requested
  int32_t* seqlen_kv;
  int32_t* first_key;
  int32_t* new_slots;
  int32_t* key_slots;
  int32_t num_new_tokens;
  int64_t num_key_slots;
};

__device__ int32_t new_slot(const BatchSource& source, int32_t token) {
  const int32_t r = find_request(source.seqlen_new, source.num_reqs, token);
  if (r >= source.num_reqs) return -1;
  const int32_t position = get_length(source.seqlen_cached, r) + token - tokens_before(source.seqlen_new, r);
  return position < source.locations.capacity ? get_slot(source.locations, r, position) : -1;
}

// Derives the entries of request, new token and key slot i.
__device__ void derive_entries(const BatchArraysParams& params, int64_t i) {
  const BatchSource& source = params.source;
  const int32_t each = source.seqused_q == nullptr ? 1 : 2, num_batch_reqs = source.num_reqs * each;
  if (i < num_batch_reqs) {
    const auto entry = static_cast<int32_t>(i);
    const BatchRequest request = batch_request(source, entry / each);
    const bool unused = entry % each > 0;
    if (params.cu_seqlen_q != nullptr)
      params.cu_seqlen_q[i] = request.first_query + (unused ? request.num_queries : 0);
    if (params.first_key != nullptr) params.first_key[i] = request.first_key;
    // With a leftpad, keys past the capacity of the cache have no key slot.
    const int32_t num_keys =
        params.num_key_slots == 0
            ? request.seqlen_kv
            : max(0, min(request.seqlen_kv, source.locations.capacity - request.leftpad));
    if (params.seqlen_kv != nullptr) params.seqlen_kv[i] = unused ? 0 : num_keys;
  } else if (i == num_batch_reqs) {
    if (params.cu_seqlen_q != nullptr)
      params.cu_seqlen_q[i] = tokens_before(source.seqlen_q, source.num_reqs);
    if (params.first_key != nullptr) params.first_key[i] = 0;
  }
  if (i < params.num_new_tokens) params.new_slots[i] = new_slot(source, static_cast<int32_t>(i));
  if (i < params.num_key_slots) {
    const int32_t capacity = source.locations.capacity;
    const auto r = static_cast<int32_t>(i / capacity), p = static_cast<int32_t>(i % capacity);
    const BatchRequest request = batch_request(source, r);
    if (p < request.seqlen_kv && p < capacity - request.leftpad)
      params.key_slots[i] = get_key_slot(source.locations, r, request.leftpad + p);
  }
}

// One thread per request, new token and key slot.
__global__ void __launch_bounds__(kThreads)
    batch_arrays_kernel(const __grid_constant__ BatchArraysParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  derive_entries(params, int64_t{blockIdx.x} * kThreads + threadIdx.x);
}

struct AppendParams {
  BatchArraysParams arrays;
  StoreParams store;
};

// Additionally, one CTA per new token and kind of rows.
__global__ void __launch_bounds__(kThreads) append_kernel(const __grid_constant__ AppendParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  if (blockIdx.y == 0) derive_entries(params.arrays, int64_t{blockIdx.x} * kThreads + threadIdx.x);
  if (blockIdx.x >= static_cast<unsigned>(params.store.num_tokens)) return;
  const auto token = static_cast<int32_t>(blockIdx.x);
  const int32_t slot = new_slot(params.arrays.source, token);
  if (slot >= 0) store_rows(params.store, token, slot, static_cast<int>(blockIdx.y));
}

unsigned num_ctas_for(int64_t num_entries) {
  return static_cast<unsigned>((num_entries + kThreads - 1) / kThreads);
}

// Leaves out the slots of new tokens.
BatchArraysParams make_params(const BatchSource& source, const BatchArrays& arrays) {
  return {.source = source,
          .cu_seqlen_q = arrays.cu_seqlen_q.data(),
          .seqlen_kv = arrays.seqlen_kv.data(),
          .first_key = arrays.first_key.data(),
          .new_slots = nullptr,
          .key_slots = arrays.key_slots.data(),
          .num_new_tokens = 0,
          .num_key_slots = static_cast<int64_t>(arrays.key_slots.size())};
}

// Number of entries, without those of new tokens.
int64_t num_batch_entries(const BatchArraysParams& params) {
  return std::max(int64_t{num_batch_reqs(params.source)} + 1, params.num_key_slots);
}

}  // namespace

void derive_batch(const BatchSource& source, const BatchArrays& arrays, Stream& stream) {
  BatchArraysParams params = make_params(source, arrays);
  params.new_slots = arrays.new_slots.data();
  params.num_new_tokens = static_cast<int32_t>(arrays.new_slots.size());
  launch_dependent<BatchArraysParams>(
      batch_arrays_kernel, num_ctas_for(std::max<int64_t>(num_batch_entries(params), params.num_new_tokens)),
      kThreads, 0, stream.handle, params, "batch arrays");
}

void append_keys(const BatchSource& source, const BatchArrays& arrays, const StoreKvArgs& store,
                 Stream& stream) {
  const AppendParams params{.arrays = make_params(source, arrays), .store = store_params(store, stream)};
  const unsigned num_tokens = static_cast<unsigned>(params.store.num_tokens);
  launch_dependent<AppendParams>(
      append_kernel, dim3(std::max(num_tokens, num_ctas_for(num_batch_entries(params.arrays))), 2), kThreads,
      0, stream.handle, params, "append keys");
}

}  // namespace attend::kernels::cuda
