// Fallback of attention and MLA: one CTA per token and query head, in float32 on the CUDA cores, for any
// dtype and layout that the tiled kernels do not support.
//
//   tile        1 row x 32 keys; 16 keys above head dim 256
//   warps       8, each with 4 (2) keys of a tile; lane l has elements l, l + 32, ...
//   registers   84, 118, 167 or 250 for head dims up to 64, 128, 256 or 576/512
//   shared      2 to 16 KB, for the sum over warps
//   bytes       per key: its K and V row, read again for every query head
//   bound       latency of loads and warp sums; this is the fallback
//
// The order of all sums depends on the visible keys only, so a row has the same bits in any batch.
#include <algorithm>

#include "attend/kernels/attention/cuda/common/attention_mask.cuh"
#include "attend/kernels/attention/cuda/common/head_scales.cuh"
#include "attend/kernels/attention/cuda/common/padding.cuh"
#include "attend/kernels/attention/cuda/sm80/attention_launch.h"
#include "attend/kernels/kv_store/cuda/scaled_rows.cuh"
#include "attend/kernels/metadata/lengths.h"
#include "attend/tensor/cuda_check.h"

namespace attend::kernels::cuda::sm80 {
namespace {

constexpr int kWarps = 8;

// Rows whose elements have one dtype.
template <Element kElement>
struct PlainRows {
  static __device__ float load(const PagedRows& rows, int64_t offset, int d) {
    return load_element(rows.data, offset + d, kElement);
  }
};

// Latent rows of fp8 groups with their scales inline.
struct ScaledRows {
  static __device__ float load(const PagedRows& rows, int64_t offset, int d) {
    return load_scaled(static_cast<const uint8_t*>(rows.data) + offset, d);
  }
};

__device__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// Loads are unconditional, at a valid address where a lane has no element: the compiler then issues all of
// them before it waits for one.
template <Element kElement, int kElements>
__device__ void load_query(const AttentionParams& params, int token, int q_head, int lane,
                           float (&q)[kElements]) {
  const int nope_dim = params.head_dim_qk - params.rope_dim;
  const int64_t nope = token * params.q.token_stride + q_head * params.q.head_stride,
                rope = token * params.q_rope.token_stride + q_head * params.q_rope.head_stride;
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    const int d = e * 32 + lane;
    const bool rotated = d >= nope_dim && d < params.head_dim_qk;
    const float x = load_element(rotated ? params.q_rope.data : params.q.data,
                                 rotated ? rope + d - nope_dim : nope + (d < nope_dim ? d : 0), kElement);
    q[e] = d < params.head_dim_qk ? x : 0.0f;
  }
}

// Lane l holds elements l, l + 32, ... of rows of up to 32 kElementsQk and 32 kElementsV elements.
template <class Rows, int kElementsQk, int kElementsV, int kKeys>
__global__ void __launch_bounds__(32 * kWarps, 1)
    row_attention(const __grid_constant__ AttentionParams params) {
  write_padding(params, params.batch.cu_seqlen_q[params.batch.num_reqs]);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int token = static_cast<int>(blockIdx.x / static_cast<unsigned>(params.num_q_heads));
  const int q_head = static_cast<int>(blockIdx.x % static_cast<unsigned>(params.num_q_heads));
  if (token >= params.batch.cu_seqlen_q[params.batch.num_reqs]) return;
  const int request = last_begin(params.batch.cu_seqlen_q, params.batch.num_reqs, token);
  const RequestSpan span = request_span(params.batch, request);
  const QueryRange query = query_range(params.batch, span, token - span.first_token);
  const int kv_head = q_head / params.group;

  float q[kElementsQk];
  switch (params.q_element) {
    case Element::kF32:
      load_query<Element::kF32>(params, token, q_head, lane, q);
      break;
    case Element::kF16:
      load_query<Element::kF16>(params, token, q_head, lane, q);
      break;
    case Element::kBF16:
      load_query<Element::kBF16>(params, token, q_head, lane, q);
      break;
    case Element::kF8E4M3:
      load_query<Element::kF8E4M3>(params, token, q_head, lane, q);
      break;
    case Element::kF8E5M2:
      load_query<Element::kF8E5M2>(params, token, q_head, lane, q);
      break;
  }

  const float scale = params.scale * load_head_scale(params.q_scales, request, kv_head) *
                      load_head_scale(params.k_scales, request, kv_head);
  float out[kElementsV] = {};
  float row_max = -INFINITY, row_sum = 0.0f;
  const bool tree = params.batch.tree_mask != nullptr && params.batch.causal;
  const int begin = max(0, tree ? min(query.lo, span.prefix()) : query.lo);
  const int end = tree ? span.seqlen_kv : query.hi + 1;
  for (int first = begin + warp * kKeys; first < end; first += kWarps * kKeys) {
    float k[kKeys][kElementsQk], v[kKeys][kElementsV];
    bool visible[kKeys];
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      visible[i] = first + i < end && sees(params.batch, span, query, first + i);
      const int key = min(first + i, end - 1);
      const int64_t page = find_page(params.index, request, key),
                    in_page = key & (params.index.page_size - 1);
      const int64_t k_offset = page * params.k.page_stride + in_page * params.k.token_stride +
                               kv_head * params.k.head_stride,
                    v_offset = page * params.v.page_stride + in_page * params.v.token_stride +
                               kv_head * params.v.head_stride;
#pragma unroll
      for (int e = 0; e < kElementsQk; ++e) {
        const int d = e * 32 + lane;
        const float x = Rows::load(params.k, k_offset, d < params.head_dim_qk ? d : 0);
        k[i][e] = d < params.head_dim_qk ? x : 0.0f;
      }
#pragma unroll
      for (int e = 0; e < kElementsV; ++e)
        v[i][e] = Rows::load(params.v, v_offset, e * 32 + lane < params.head_dim_v ? e * 32 + lane : 0);
    }
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      float score = 0.0f;
#pragma unroll
      for (int e = 0; e < kElementsQk; ++e) score += q[e] * k[i][e];
      score = warp_sum(score) * scale;
      if (params.logit_cap > 0.0f) score = params.logit_cap * tanhf(score / params.logit_cap);
      if (!visible[i]) continue;
      const float new_max = fmaxf(row_max, score);
      const float rescale = expf(row_max - new_max), p = expf(score - new_max);
      row_max = new_max;
      row_sum = row_sum * rescale + p;
#pragma unroll
      for (int e = 0; e < kElementsV; ++e) out[e] = out[e] * rescale + p * v[i][e];
    }
  }

  // Sums over warps, in the order of the warps.
  __shared__ float warp_out[kWarps][32 * kElementsV], warp_max[kWarps], warp_row_sum[kWarps];
#pragma unroll
  for (int e = 0; e < kElementsV; ++e) warp_out[warp][e * 32 + lane] = out[e];
  if (lane == 0) warp_max[warp] = row_max, warp_row_sum[warp] = row_sum;
  __syncthreads();
  float factor[kWarps], all_max = -INFINITY, all_sum = 0.0f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) all_max = fmaxf(all_max, warp_max[w]);
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    factor[w] = warp_row_sum[w] > 0.0f ? expf(warp_max[w] - all_max) : 0.0f;
    all_sum += warp_row_sum[w] * factor[w];
  }
  float out_scale = 0.0f;
  if (all_sum > 0.0f) {
    const float sink = params.sinks == nullptr ? 0.0f : expf(params.sinks[q_head] - all_max);
    out_scale = params.v_scale * load_head_scale(params.v_scales, request, kv_head) / (all_sum + sink);
  }
  const int64_t to = token * params.out.token_stride + q_head * params.out.head_stride;
  for (int d = static_cast<int>(threadIdx.x); d < params.head_dim_v; d += 32 * kWarps) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += factor[w] * warp_out[w][d];
    store_element(params.out.data, to + d, params.out_element, sum * out_scale);
  }
  if (threadIdx.x == 0 && params.lse != nullptr)
    params.lse[token * params.lse_token_stride + q_head * params.lse_head_stride] =
        all_sum > 0.0f ? all_max + logf(all_sum) : params.empty_lse;
}

void launch_rows(void (*kernel)(AttentionParams), const AttentionParams& params, void* stream) {
  const int64_t num_rows = int64_t{params.num_tokens} * params.num_q_heads;
  if (num_rows == 0) return;
  kernel<<<static_cast<unsigned>(num_rows), 32 * kWarps, 0, static_cast<cudaStream_t>(stream)>>>(params);
  attend::cuda::check(cudaGetLastError(), "row attention");
}

template <Element kElement>
void launch_plain_rows(const AttentionParams& params, void* stream) {
  using Rows = PlainRows<kElement>;
  const int head_dim = std::max(params.head_dim_qk, params.head_dim_v);
  if (head_dim <= 64) return launch_rows(row_attention<Rows, 2, 2, 4>, params, stream);
  if (head_dim <= 128) return launch_rows(row_attention<Rows, 4, 4, 4>, params, stream);
  if (head_dim <= 256) return launch_rows(row_attention<Rows, 8, 8, 4>, params, stream);
  launch_rows(row_attention<Rows, 18, 16, 2>, params, stream);
}

}  // namespace

void launch_row_attention(const AttentionParams& params, void* stream) {
  switch (params.kv_element) {
    case Element::kF32:
      return launch_plain_rows<Element::kF32>(params, stream);
    case Element::kF16:
      return launch_plain_rows<Element::kF16>(params, stream);
    case Element::kBF16:
      return launch_plain_rows<Element::kBF16>(params, stream);
    case Element::kF8E4M3:
      return launch_plain_rows<Element::kF8E4M3>(params, stream);
    case Element::kF8E5M2:
      return launch_plain_rows<Element::kF8E5M2>(params, stream);
  }
}

void launch_scaled_row_attention(const AttentionParams& params, void* stream) {
  launch_rows(row_attention<ScaledRows, 18, 16, 2>, params, stream);
}

}  // namespace attend::kernels::cuda::sm80
