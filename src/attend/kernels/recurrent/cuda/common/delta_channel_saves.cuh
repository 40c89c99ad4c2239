// States that are saved inside a chunk with decays per channel.
#pragma once

#include "attend/kernels/recurrent/cuda/common/delta_gates.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_scan.cuh"

namespace attend::kernels::cuda {

// Writes the state after row `last` of a chunk to `rows`, this lane's elements of a slot. `state` is the one
// before the chunk, and v its V. One token after another: the factor between two rows of the chunk is not a
// quotient of stored ones, which may be 0. Saved states are rare, mostly at the end of a chunk.
template <class T, int kDimK>
__device__ inline void save_channel_state(const DeltaParams& params, const DeltaChunk& chunk, int head,
                                          const float* k_norms, const ScanState<kDimK>& state,
                                          const float (&v)[kChunkTiles][4], int last, float* rows, int lane) {
  const float rate = expf(params.a_log[head]);
  const float* const dt_bias = params.dt_bias + int64_t{head} * kDimK;
  const T* const alphas = static_cast<const T*>(params.alpha.data) + head * params.alpha.head_stride;
  const T* const keys = static_cast<const T*>(params.k.data) + head / params.ratio * params.k.head_stride;
  const int first = max(chunk.begin - chunk.first, 0);
#pragma unroll
  for (int tile = 0; tile < kDimK / 8; ++tile) {
    const int channel = tile * 8 + lane % 4 * 2;
    const float2 bias = *reinterpret_cast<const float2*>(dt_bias + channel);
    float sum[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = state.tiles[tile][i];
#pragma unroll 1
    for (int j = first; j <= last; ++j) {
      const int token = chunk.first + j;
      const auto pair_at = [&](const T* head_row, int64_t token_stride) {
        return unpack_pair<T>(*reinterpret_cast<const uint32_t*>(head_row + token * token_stride + channel));
      };
      const float2 alpha = pair_at(alphas, params.alpha.token_stride),
                   key = pair_at(keys, params.k.token_stride);
      // V of token j is in the lane of these columns of tile j / 8.
      float own[2] = {};
#pragma unroll
      for (int t = 0; t < kChunkTiles; ++t)
        if (t == j / 8) {
          own[0] = j % 2 == 0 ? v[t][0] : v[t][1];
          own[1] = j % 2 == 0 ? v[t][2] : v[t][3];
        }
      const int owner = lane / 4 * 4 + j % 8 / 2;
      const float top = __shfl_sync(0xffffffffu, own[0], owner) * k_norms[j];
      const float bottom = __shfl_sync(0xffffffffu, own[1], owner) * k_norms[j];
      const float left = expf(delta_log_decay(__fadd_rn(alpha.x, bias.x), rate, params.lower_bound));
      const float right = expf(delta_log_decay(__fadd_rn(alpha.y, bias.y), rate, params.lower_bound));
      sum[0] = fmaf(left, sum[0], top * key.x);
      sum[1] = fmaf(right, sum[1], top * key.y);
      sum[2] = fmaf(left, sum[2], bottom * key.x);
      sum[3] = fmaf(right, sum[3], bottom * key.y);
    }
    ScanState<kDimK>::store_tile(rows, tile, sum);
  }
}

}  // namespace attend::kernels::cuda
