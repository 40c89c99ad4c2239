// Fallback of attention and MLA: one warp per token and query head, in float32 on the CUDA cores, for any
// dtype and layout that the tiled kernels do not support.
//
//   tile        1 row x 4 keys (2 above head dim 256); head dims up to 256/256, or 576/512
//   warps       4, each with its own row; lane l has elements l, l + 32, ...
//   registers   80 (96)
//   shared      none
//   bytes       per key: its K and V row, read again for every query head
//   bound       latency of the warp sums; this is the fallback
#include "attend/kernels/attention/cuda/common/attention_mask.cuh"
#include "attend/kernels/attention/cuda/common/head_scales.cuh"
#include "attend/kernels/attention/cuda/common/padding.cuh"
#include "attend/kernels/attention/cuda/sm80/attention_launch.h"
#include "attend/kernels/kv_store/cuda/scaled_rows.cuh"
#include "attend/kernels/metadata/lengths.h"
#include "attend/tensor/cuda_check.h"

namespace attend::kernels::cuda::sm80 {
namespace {

constexpr int kWarps = 4;

__device__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// Lane l holds elements l, l + 32, ... of rows of up to 32 kElementsQk and 32 kElementsV elements.
template <int kElementsQk, int kElementsV, int kKeys, bool kScaled>
__global__ void __launch_bounds__(32 * kWarps) row_attention(const __grid_constant__ AttentionParams params) {
  if (blockIdx.y == 0) write_padding(params, params.batch.cu_seqlen_q[params.batch.num_reqs]);
  const int lane = threadIdx.x % 32;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int token = static_cast<int>(row / params.num_q_heads);
  const int q_head = static_cast<int>(row % params.num_q_heads);
  if (token >= params.batch.cu_seqlen_q[params.batch.num_reqs]) return;
  const int request = last_begin(params.batch.cu_seqlen_q, params.batch.num_reqs, token);
  const RequestSpan span = request_span(params.batch, request);
  const QueryRange query = query_range(params.batch, span, token - span.first_token);
  const int kv_head = q_head / params.group;

  float q[kElementsQk];
  const int nope_dim = params.head_dim_qk - params.rope_dim;
#pragma unroll
  for (int e = 0; e < kElementsQk; ++e) {
    const int d = e * 32 + lane;
    q[e] = 0.0f;
    if (d < nope_dim)
      q[e] = load_element(params.q.data, token * params.q.token_stride + q_head * params.q.head_stride + d,
                          params.q_element);
    else if (d < params.head_dim_qk)
      q[e] =
          load_element(params.q_rope.data,
                       token * params.q_rope.token_stride + q_head * params.q_rope.head_stride + d - nope_dim,
                       params.q_element);
  }

  // Loads element d of the row that starts at `offset`.
  const auto load = [&](const PagedRows& rows, int64_t offset, int d) {
    if constexpr (kScaled) return load_scaled(static_cast<const uint8_t*>(rows.data) + offset, d);
    return load_element(rows.data, offset + d, params.kv_element);
  };
  const float scale = params.scale * load_head_scale(params.q_scales, request, kv_head) *
                      load_head_scale(params.k_scales, request, kv_head);
  float out[kElementsV] = {};
  float row_max = -INFINITY, row_sum = 0.0f;
  const bool tree = params.batch.tree_mask != nullptr && params.batch.causal;
  const int begin = max(0, tree ? min(query.lo, span.prefix()) : query.lo);
  const int end = tree ? span.seqlen_kv : query.hi + 1;
  for (int first = begin; first < end; first += kKeys) {
    int64_t v_offset[kKeys];
    float score[kKeys];
    bool visible[kKeys];
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const int key = first + i;
      visible[i] = key < end && sees(params.batch, span, query, key);
      score[i] = 0.0f;
      if (!visible[i]) continue;
      const int64_t page = find_page(params.index, request, key),
                    in_page = key & (params.index.page_size - 1);
      const int64_t k_offset =
          page * params.k.page_stride + in_page * params.k.token_stride + kv_head * params.k.head_stride;
      v_offset[i] =
          page * params.v.page_stride + in_page * params.v.token_stride + kv_head * params.v.head_stride;
#pragma unroll
      for (int e = 0; e < kElementsQk; ++e)
        if (e * 32 + lane < params.head_dim_qk) score[i] += q[e] * load(params.k, k_offset, e * 32 + lane);
    }
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      score[i] = warp_sum(score[i]) * scale;
      if (params.logit_cap > 0.0f) score[i] = params.logit_cap * tanhf(score[i] / params.logit_cap);
      if (!visible[i]) continue;
      const float new_max = fmaxf(row_max, score[i]);
      const float rescale = expf(row_max - new_max), p = expf(score[i] - new_max);
      row_max = new_max;
      row_sum = row_sum * rescale + p;
#pragma unroll
      for (int e = 0; e < kElementsV; ++e)
        if (e * 32 + lane < params.head_dim_v)
          out[e] = out[e] * rescale + p * load(params.v, v_offset[i], e * 32 + lane);
    }
  }

  float out_scale = 0.0f;
  if (row_sum > 0.0f) {
    const float sink = params.sinks == nullptr ? 0.0f : expf(params.sinks[q_head] - row_max);
    out_scale = params.v_scale * load_head_scale(params.v_scales, request, kv_head) / (row_sum + sink);
  }
  const int64_t to = token * params.out.token_stride + q_head * params.out.head_stride;
#pragma unroll
  for (int e = 0; e < kElementsV; ++e)
    if (e * 32 + lane < params.head_dim_v)
      store_element(params.out.data, to + e * 32 + lane, params.out_element, out[e] * out_scale);
  if (lane == 0 && params.lse != nullptr)
    params.lse[token * params.lse_token_stride + q_head * params.lse_head_stride] =
        row_sum > 0.0f ? row_max + logf(row_sum) : params.empty_lse;
}

void launch_rows(void (*kernel)(AttentionParams), const AttentionParams& params, void* stream) {
  const int64_t num_rows = int64_t{params.num_tokens} * params.num_q_heads;
  if (num_rows == 0) return;
  const auto num_ctas = static_cast<unsigned>((num_rows + kWarps - 1) / kWarps);
  kernel<<<num_ctas, 32 * kWarps, 0, static_cast<cudaStream_t>(stream)>>>(params);
  attend::cuda::check(cudaGetLastError(), "row attention");
}

}  // namespace

void launch_row_attention(const AttentionParams& params, void* stream) {
  launch_rows(params.head_dim_qk <= 256 ? row_attention<8, 8, 4, false> : row_attention<18, 16, 2, false>,
              params, stream);
}

void launch_scaled_row_attention(const AttentionParams& params, void* stream) {
  launch_rows(row_attention<18, 16, 2, true>, params, stream);
}

}  // namespace attend::kernels::cuda::sm80
