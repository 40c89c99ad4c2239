// Edits and masks of logits, and log-probabilities: one CTA per row.
//
//   edits       one thread per edit; then one thread per token of a masked row
//   top         threads hold the largest of every 1024th token. The largest of these is the next result, and
//               the warp of its thread searches that thread's tokens for a replacement
//   bytes       a masked row is written where it is masked; log-probabilities read their row twice
//   bound       reading the logits; for many top tokens the latency of finding one after another
#include <climits>

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/sampling/cuda/edit_logits_kernel.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr uint32_t kLanes = 0xffffffffu;

// Start of a kernel that reads data of the previous one.
__device__ void begin() {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
}

__global__ void __launch_bounds__(kThreads) edit_kernel(const __grid_constant__ EditParams params) {
  begin();
  const int row_idx = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  float* const row = params.rows.logits + row_idx * params.rows.row_stride;
  const int end = params.cu_edits[row_idx + 1];
  for (int e = params.cu_edits[row_idx] + thread; e < end; e += kThreads) {
    const LogitEdit edit = params.edits[e];
    const float logit = row[edit.token_id];
    params.before[e] = logit;
    const float scaled = logit > 0.0f ? __fdiv_rn(logit, edit.repetition) : __fmul_rn(logit, edit.repetition);
    row[edit.token_id] = __fadd_rn(scaled, edit.offset);
  }
  if (params.mask_row_idx == nullptr || params.mask_row_idx[row_idx] < 0) return;
  __syncthreads();
  const int num_words = (params.rows.vocab_size + 31) / 32;
  const uint32_t* const mask = params.masks + int64_t{params.mask_row_idx[row_idx]} * num_words;
  for (int v = thread; v < params.rows.vocab_size; v += kThreads)
    if ((mask[v / 32] >> (v % 32) & 1u) == 0) row[v] = -INFINITY;
}

// Key of a logit and its token: orders by logit, and for equal logits the lowest token is largest. 0 for NaN
// and for none.
__device__ uint64_t make_key(float logit, int token_id) {
  if (isnan(logit)) return 0;
  const uint32_t bits = __float_as_uint(logit + 0.0f);
  const uint32_t order = bits >> 31 ? ~bits : bits | 0x80000000u;
  return uint64_t{order} << 32 | ~static_cast<uint32_t>(token_id);
}
__device__ int key_token(uint64_t key) { return static_cast<int>(~static_cast<uint32_t>(key)); }
__device__ float key_logit(uint64_t key) {
  const auto order = static_cast<uint32_t>(key >> 32);
  return __uint_as_float(order >> 31 ? order & 0x7fffffffu : ~order);
}

__device__ uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }
__device__ uint64_t warp_largest(uint64_t key) {
  for (int step = 16; step > 0; step /= 2) key = larger(key, __shfl_xor_sync(kLanes, key, step));
  return key;
}
// Returns the largest key of all threads to all threads.
__device__ uint64_t cta_largest(uint64_t key, uint64_t* warp_results) {
  key = warp_largest(key);
  __syncthreads();  // warp_results may still be read
  if (threadIdx.x % 32 == 0) warp_results[threadIdx.x / 32] = key;
  __syncthreads();
  for (int warp = 0; warp < kWarps; ++warp) key = larger(key, warp_results[warp]);
  return key;
}
// Sums in a fixed order.
__device__ float cta_sum(float value, float* warp_results) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kLanes, value, step);
  if (threadIdx.x % 32 == 0) warp_results[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0f;
  for (int warp = 0; warp < kWarps; ++warp) sum += warp_results[warp];
  return sum;
}

// Called by one warp: returns the largest key below `bound` among the tokens of one thread.
__device__ uint64_t next_largest(uint64_t bound, const float* row, int vocab_size, int thread) {
  uint64_t found = 0;
  for (int64_t v = thread + int64_t{kThreads} * (threadIdx.x % 32); v < vocab_size; v += 32 * kThreads) {
    const uint64_t key = make_key(row[v], static_cast<int>(v));
    if (key < bound) found = larger(found, key);
  }
  return warp_largest(found);
}

__global__ void __launch_bounds__(kThreads)
    top_logprob_kernel(const __grid_constant__ TopLogprobParams params) {
  __shared__ uint64_t warp_max_values[kWarps];
  __shared__ float warp_sums[kWarps];
  begin();
  const int row_idx = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int num_top = params.num_top[row_idx];
  if (num_top < 0) return;
  const float* const row = params.rows.logits + row_idx * params.rows.row_stride;
  const int vocab_size = params.rows.vocab_size;

  uint64_t mine = 0;
  for (int v = thread; v < vocab_size; v += kThreads) mine = larger(mine, make_key(row[v], v));
  uint64_t top_logit = cta_largest(mine, warp_max_values);
  const float max = top_logit == 0 ? -INFINITY : key_logit(top_logit);
  float log_sum = max;
  if (!isinf(max)) {
    float sum = 0.0f;
    for (int v = thread; v < vocab_size; v += kThreads)
      if (const float logit = row[v]; !isnan(logit)) sum += expf(logit - max);
    log_sum = max + logf(cta_sum(sum, warp_sums));
  }
  if (thread == 0) params.log_sums[row_idx] = log_sum;

  TokenLogprob* const top = params.top + int64_t{row_idx} * params.max_top;
  for (int i = 0; i < num_top; ++i) {
    if (thread == 0)
      top[i] = top_logit == 0 ? TokenLogprob{-1, -INFINITY}
                              : TokenLogprob{key_token(top_logit), key_logit(top_logit) - log_sum};
    if (top_logit == 0 || i + 1 == num_top) continue;
    const int holder = key_token(top_logit) % kThreads;
    if (thread / 32 == holder / 32) {
      const uint64_t next = next_largest(top_logit, row, vocab_size, holder);
      if (thread == holder) mine = next;
    }
    top_logit = cta_largest(mine, warp_max_values);
  }
}

__global__ void __launch_bounds__(kThreads)
    token_logprob_kernel(const __grid_constant__ TokenLogprobParams params) {
  begin();
  const EditParams& edited = params.edited;
  const int row_idx = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int id = params.ids[row_idx];
  if (id < 0) return;
  const float log_sum = params.log_sums[row_idx];
  if (thread == 0)
    params.logprobs[row_idx] = edited.rows.logits[row_idx * edited.rows.row_stride + id] - log_sum;
  __syncthreads();
  const int end = edited.cu_edits[row_idx + 1];
  for (int e = edited.cu_edits[row_idx] + thread; e < end; e += kThreads)
    if (edited.edits[e].token_id == id) params.logprobs[row_idx] = edited.before[e] - log_sum;
}

template <class Params>
void launch(void (*kernel)(Params), int num_rows, const Params& params, void* stream, const char* what) {
  if (num_rows > 0)
    launch_dependent<Params>(kernel, static_cast<unsigned>(num_rows), kThreads, 0, stream, params, what);
}

}  // namespace

void launch_edit_logits(const EditParams& params, void* stream) {
  launch(edit_kernel, params.rows.num_rows, params, stream, "edit_logits");
}
void launch_top_logprobs(const TopLogprobParams& params, void* stream) {
  launch(top_logprob_kernel, params.rows.num_rows, params, stream, "top_logprobs");
}
void launch_token_logprobs(const TokenLogprobParams& params, void* stream) {
  launch(token_logprob_kernel, params.edited.rows.num_rows, params, stream, "token_logprobs");
}

}  // namespace attend::kernels::cuda
