#include <algorithm>

#include "attend/kernels/cuda/batch_arrays.h"
#include "attend/kernels/cuda/launch.cuh"
#include "attend/kernels/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/length_of.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 256;

struct BatchArraysParams {
  BatchSource source;
  int32_t* cu_seqlen_q;  // null: not wanted
  int32_t* seqlen_kv;
  int32_t* first_key;
  int32_t* new_slots;
  int32_t num_new_tokens;
};

// The request of new token `token`; num_reqs for padding.
__device__ int32_t request_of_new(const BatchSource& source, int32_t token) {
  const Lengths& lengths = source.seqlen_new;
  if (lengths.cu == nullptr) return min(source.num_reqs, token / max(1, lengths.all));
  int32_t low = 0, high = source.num_reqs + 1;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    if (lengths.cu[middle] <= token)
      low = middle;
    else
      high = middle;
  }
  return low;
}

__device__ int32_t new_slot(const BatchSource& source, int32_t token) {
  const int32_t r = request_of_new(source, token);
  if (r >= source.num_reqs) return -1;
  const int32_t position = length_of(source.seqlen_cached, r) + token - tokens_before(source.seqlen_new, r);
  return position < source.places.capacity ? slot_of(source.places, r, position) : -1;
}

// A thread per request, and per new token.
__global__ void __launch_bounds__(kThreads)
    batch_arrays_kernel(const __grid_constant__ BatchArraysParams params) {
  ptx::allow_next_kernel();
  ptx::wait_for_previous_kernel();
  const BatchSource& source = params.source;
  const auto i = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (i <= source.num_reqs) {
    const bool is_end = i == source.num_reqs;
    if (params.cu_seqlen_q != nullptr) params.cu_seqlen_q[i] = tokens_before(source.seqlen_q, i);
    if (params.first_key != nullptr) params.first_key[i] = is_end ? 0 : first_key_of(source.places, i);
    if (params.seqlen_kv != nullptr && !is_end)
      params.seqlen_kv[i] = length_of(source.seqlen_cached, i) + length_of(source.seqlen_new, i);
  }
  if (i < params.num_new_tokens) params.new_slots[i] = new_slot(source, i);
}

}  // namespace

void derive_batch(const BatchSource& source, const BatchArrays& arrays, Stream& stream) {
  const BatchArraysParams params{.source = source,
                                 .cu_seqlen_q = arrays.cu_seqlen_q.data(),
                                 .seqlen_kv = arrays.seqlen_kv.data(),
                                 .first_key = arrays.first_key.data(),
                                 .new_slots = arrays.new_slots.data(),
                                 .num_new_tokens = static_cast<int32_t>(arrays.new_slots.size())};
  const int num_threads = std::max(source.num_reqs + 1, params.num_new_tokens);
  launch_dependent<BatchArraysParams>(batch_arrays_kernel,
                                      static_cast<unsigned>((num_threads + kThreads - 1) / kThreads),
                                      kThreads, 0, stream.handle, params, "batch arrays");
}

}  // namespace attend::kernels::cuda
