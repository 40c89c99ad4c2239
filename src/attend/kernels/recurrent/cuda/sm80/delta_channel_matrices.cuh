// Matrices and operands of the chunk form with decays per channel (delta_chunk_layout.h), in parallel for all
// chunks.
//
//   tile        a chunk of 64 tokens and a value head
//   warps       4, each with 16 rows of the chunk
//   registers   at most 168: the products k k^T and q k^T of 16 rows
//   shared      69 KB for head_dim_k 128: k; q, then blocks of M; G of each channel
//   bytes       k, q and alpha once; 10 KB of matrices and 48 KB of scaled k and q per value head
//   bound       exponentials and multiply-adds of the diagonal blocks
//
// Differences of G become factors of both operands of a product, relative to a row between them, so that no
// factor exceeds 1: for blocks left of the diagonal the last row before block row w, and for the lower left
// 8 x 8 elements of a diagonal block its row 7. The diagonal 8 x 8 elements have no such row: they are sums
// in float32 with an exponential per pair of rows and channel.
#pragma once

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/recurrent/cuda/sm80/delta_chunk_blocks.cuh"
#include "attend/kernels/recurrent/cuda/sm80/delta_chunk_kernel.h"

namespace attend::kernels::cuda::sm80 {

template <int kDimK>
struct ChannelMatricesShared {
  static constexpr int kStride = PaddedRows<kDimK>::kStride, kDecayStride = kDimK + 4;

  alignas(16) char k[PaddedRows<kDimK>::kBytes];
  union {
    alignas(16) char q[PaddedRows<kDimK>::kBytes];
    MatrixBlocks blocks;  // after the last use of q
  };
  alignas(16) float log_decay[kDeltaChunk * kDecayStride];  // G
  float beta[kDeltaChunk], no_decay[kDeltaChunk];
  float k_norm[kDeltaChunk], q_norm[kDeltaChunk];

  __device__ const float* decays_of(int row) const { return log_decay + row * kDecayStride; }
};

// Running sums G of the logarithms of one channel's decays.
template <class T, int kStride>
__device__ inline void sum_channel_decays(const DeltaParams& params, const DeltaChunk& chunk, int head,
                                          int channel, float* log_decay) {
  constexpr int kLoads = 16;
  const float rate = expf(params.a_log[head]), bias = params.dt_bias[head * params.dim_k + channel];
  const T* const alpha = static_cast<const T*>(params.alpha.data) + chunk.first * params.alpha.token_stride +
                         head * params.alpha.head_stride + channel;
  float sum = 0.0f;
  for (int first = 0; first < kDeltaChunk; first += kLoads) {
    T inputs[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      inputs[i] = chunk.has(first + i) ? alpha[(first + i) * params.alpha.token_stride] : T(0.0f);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (chunk.has(first + i))
        sum += delta_log_decay(__fadd_rn(static_cast<float>(inputs[i]), bias), rate, params.lower_bound);
      log_decay[(first + i) * kStride + channel] = sum;
    }
  }
}

// Multiplies a pair of elements by exp(minuend - subtrahend) of their channels.
template <class T>
__device__ inline uint32_t scale_pair(uint32_t bits, const float2& minuend, const float2& subtrahend) {
  const float2 pair = unpack_pair<T>(bits);
  return pack_pair(pair.x * __expf(minuend.x - subtrahend.x), pair.y * __expf(minuend.y - subtrahend.y), T{});
}

__device__ inline float2 load_pair(const float* from) { return *reinterpret_cast<const float2*>(from); }

// Writes k and q times the decays of the chunk up to their row, k times the decays after its row, and the
// decays of the whole chunk. k and q include their norms.
template <class T, int kDimK>
__device__ inline void store_scaled_rows(const ChannelMatricesShared<kDimK>& shared, char* out, int thread) {
  using Shared = ChannelMatricesShared<kDimK>;
  constexpr int kQuads = kDimK / 4;
  const float* const last = shared.decays_of(kDeltaChunk - 1);
  for (int quad = thread; quad < kDeltaChunk * kQuads; quad += kMatricesThreads) {
    const int row = quad / kQuads, channel = quad % kQuads * 4;
    const float* const decays = shared.decays_of(row) + channel;
    const uint32_t* const k =
        reinterpret_cast<const uint32_t*>(shared.k) + (row * Shared::kStride + channel) / 2;
    const uint32_t* const q =
        reinterpret_cast<const uint32_t*>(shared.q) + (row * Shared::kStride + channel) / 2;
    const float k_norm = shared.k_norm[row], q_norm = shared.q_norm[row];
    uint32_t read_k[2], read_q[2], written_k[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float2 sum = load_pair(decays + 2 * i), end = load_pair(last + channel + 2 * i);
      const float2 before = make_float2(__expf(sum.x), __expf(sum.y));
      const float2 after = make_float2(__expf(end.x - sum.x), __expf(end.y - sum.y));
      const float2 key = unpack_pair<T>(k[i]), query = unpack_pair<T>(q[i]);
      read_k[i] = pack_pair(key.x * k_norm * before.x, key.y * k_norm * before.y, T{});
      read_q[i] = pack_pair(query.x * q_norm * before.x, query.y * q_norm * before.y, T{});
      written_k[i] = pack_pair(key.x * k_norm * after.x, key.y * k_norm * after.y, T{});
    }
    char* const to = out + kDeltaRowsOffset<kDimK> + (row * kDimK + channel) * 2;
    constexpr int kRowsBytes = kDeltaChunk * kDimK * 2;
    *reinterpret_cast<uint2*>(to) = make_uint2(read_k[0], read_k[1]);
    *reinterpret_cast<uint2*>(to + kRowsBytes) = make_uint2(read_q[0], read_q[1]);
    *reinterpret_cast<uint2*>(to + 2 * kRowsBytes) = make_uint2(written_k[0], written_k[1]);
  }
  if (thread < kDimK) reinterpret_cast<float*>(out + kDeltaSlotBytes)[thread] = __expf(last[thread]);
}

// Products of one lane: k k^T and q k^T of a warp's 16 rows, as in d of mma.m16n8k16.
struct ChannelProducts {
  float kk[kDeltaChunk / 8 - 2][4] = {}, qk[kDeltaChunk / 8 - 2][4] = {};  // left of the diagonal block
  float diagonal_kk[2][4] = {}, diagonal_qk[2][4] = {};
};

// Products on tensor cores: all but the diagonal 8 x 8 elements.
template <class T, int kDimK>
__device__ inline void multiply_separated_rows(const ChannelMatricesShared<kDimK>& shared, int warp, int lane,
                                               ChannelProducts& products) {
  using Shared = ChannelMatricesShared<kDimK>;
  constexpr int kStride = Shared::kStride;
  const uint32_t k = ptx::shared_address(shared.k), q = ptx::shared_address(shared.q);
  const int base = warp * kBlock, row = base + lane / 4, column = lane % 4 * 2;
  const float* const before = shared.decays_of(max(base - 1, 0));  // not used by warp 0
  const float* const middle = shared.decays_of(base + 7);
#pragma unroll
  for (int step = 0; step < kDimK / 16; ++step) {
    uint32_t key[4], query[4];
    ptx::ldmatrix_x4(key, address_a<kStride>(k + base * kStride * 2 + step * 32, lane));
    ptx::ldmatrix_x4(query, address_a<kStride>(q + base * kStride * 2 + step * 32, lane));
    const int channels[2] = {step * 16 + column, step * 16 + 8 + column};

    uint32_t low_key[4], low_query[4], b[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool low = i % 2 == 1;
      const float2 sum = load_pair(shared.decays_of(row + 8) + channels[i / 2]),
                   reference = load_pair(middle + channels[i / 2]);
      low_key[i] = low ? scale_pair<T>(key[i], sum, reference) : 0;
      low_query[i] = low ? scale_pair<T>(query[i], sum, reference) : 0;
    }
    ptx::ldmatrix_x4(b, address_b<kStride>(k + base * kStride * 2 + step * 32, lane));
#pragma unroll
    for (int i = 0; i < 2; ++i)
      b[i] = scale_pair<T>(b[i], load_pair(middle + channels[i]),
                           load_pair(shared.decays_of(base + lane / 4) + channels[i]));
    ptx::mma_m16n8k16(products.diagonal_kk[0], low_key, b[0], b[1], T{});
    ptx::mma_m16n8k16(products.diagonal_qk[0], low_query, b[0], b[1], T{});

    if (warp == 0) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 sum = load_pair(shared.decays_of(row + i % 2 * 8) + channels[i / 2]),
                   reference = load_pair(before + channels[i / 2]);
      key[i] = scale_pair<T>(key[i], sum, reference);
      query[i] = scale_pair<T>(query[i], sum, reference);
    }
#pragma unroll
    for (int block = 0; block < kMatricesWarps - 1; ++block) {
      if (block >= warp) continue;
      ptx::ldmatrix_x4(b, address_b<kStride>(k + block * kBlock * kStride * 2 + step * 32, lane));
#pragma unroll
      for (int i = 0; i < 4; ++i)
        b[i] = scale_pair<T>(
            b[i], load_pair(before + channels[i % 2]),
            load_pair(shared.decays_of(block * kBlock + i / 2 * 8 + lane / 4) + channels[i % 2]));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        ptx::mma_m16n8k16(products.kk[2 * block + half], key, b[2 * half], b[2 * half + 1], T{});
        ptx::mma_m16n8k16(products.qk[2 * block + half], query, b[2 * half], b[2 * half + 1], T{});
      }
    }
  }
}

// The diagonal 8 x 8 elements. Those above the diagonal are not defined: their exponentials may overflow.
template <class T, int kDimK>
__device__ inline void multiply_adjacent_rows(const ChannelMatricesShared<kDimK>& shared, int warp, int lane,
                                              ChannelProducts& products) {
  constexpr int kWords = ChannelMatricesShared<kDimK>::kStride / 2;
  const uint32_t* const k = reinterpret_cast<const uint32_t*>(shared.k);
  const uint32_t* const q = reinterpret_cast<const uint32_t*>(shared.q);
#pragma unroll 2
  for (int pair = 0; pair < kDimK / 2; ++pair) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int base = warp * kBlock + half * 8, row = base + lane / 4, column = base + lane % 4 * 2;
      const float2 key = unpack_pair<T>(k[row * kWords + pair]);
      const float2 query = unpack_pair<T>(q[row * kWords + pair]);
      const float2 sum = load_pair(shared.decays_of(row) + 2 * pair);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float2 other = unpack_pair<T>(k[(column + i) * kWords + pair]);
        const float2 other_sum = load_pair(shared.decays_of(column + i) + 2 * pair);
        const float x = other.x * __expf(sum.x - other_sum.x), y = other.y * __expf(sum.y - other_sum.y);
        float& kk = products.diagonal_kk[half][2 * half + i];
        float& qk = products.diagonal_qk[half][2 * half + i];
        kk = fmaf(key.y, y, fmaf(key.x, x, kk));
        qk = fmaf(query.y, y, fmaf(query.x, x, qk));
      }
    }
  }
}

template <class T, int kDimK>
__global__ void __launch_bounds__(kMatricesThreads, 3)
    delta_channel_matrices_kernel(const __grid_constant__ DeltaChunkParams params) {
  using Shared = ChannelMatricesShared<kDimK>;
  ptx::launch_dependents();
  extern __shared__ __align__(16) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const DeltaParams& delta = params.delta;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int head = static_cast<int>(blockIdx.y), slot = static_cast<int>(blockIdx.x);
  const int key_head = head / delta.ratio;
  // Later rows have more blocks, so they belong to another scheduler in each CTA.
  const int warp = (thread / 32 + slot + head) % kMatricesWarps;
  ptx::griddepcontrol_wait();
  const DeltaChunkIndex index = find_delta_chunk(delta.batch, slot);
  if (index.request < 0) return;
  const DeltaChunk chunk = delta_chunk(step_request(delta.batch, index.request), index.chunk);

  copy_chunk_rows<T, kDimK, PaddedRows<kDimK>, kMatricesThreads>(delta.k, chunk, key_head, 0,
                                                                 ptx::shared_address(shared.k), threadIdx.x);
  copy_chunk_rows<T, kDimK, PaddedRows<kDimK>, kMatricesThreads>(delta.q, chunk, key_head, 0,
                                                                 ptx::shared_address(shared.q), threadIdx.x);
  ptx::cp_async_commit_group();
  if (thread < kDimK)
    sum_channel_decays<T, Shared::kDecayStride>(delta, chunk, head, thread, shared.log_decay);
  if (warp == 0) chunk_gates<T>(delta, chunk, key_head, head, shared.no_decay, shared.beta, lane);
  ptx::cp_async_wait_group<0>();
  __syncthreads();
  const float own_k_norm = chunk_row_norm<T, kDimK>(shared.k, thread);
  const float own_q_norm = delta.q_scale * chunk_row_norm<T, kDimK>(shared.q, thread);
  if (thread % 2 == 0) {
    shared.k_norm[thread / 2] = own_k_norm;
    shared.q_norm[thread / 2] = own_q_norm;
  }
  __syncthreads();

  char* const out =
      params.workspace + (int64_t{slot} * delta.num_v_heads + head) * kDeltaSlotBytesOf<kDimK, true>;
  store_scaled_rows<T>(shared, out, thread);
  ChannelProducts products;
  multiply_separated_rows<T>(shared, warp, lane, products);
  multiply_adjacent_rows<T>(shared, warp, lane, products);

  const int row = warp * kBlock + lane / 4;  // and row + 8
  const int column = lane % 4 * 2;           // and column + 1, in each tile
  const float row_key[2] = {shared.beta[row] * shared.k_norm[row],
                            shared.beta[row + 8] * shared.k_norm[row + 8]};
  const float row_query[2] = {shared.q_norm[row], shared.q_norm[row + 8]};
  __syncthreads();  // q is no longer read
  store_chunk_matrices<T>(
      shared.blocks, out, warp, lane, [&](int block, int half, float(&a)[4], float(&m)[4]) {
        // The last block row has no blocks to the left of its own in the last column of blocks.
        const int tile = block == kMatricesWarps - 1 ? 0 : 2 * block + half;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float kk = block == warp ? products.diagonal_kk[half][i] : products.kk[tile][i];
          const float qk = block == warp ? products.diagonal_qk[half][i] : products.qk[tile][i];
          const int r = row + i / 2 * 8, c = block * kBlock + half * 8 + column + i % 2;
          a[i] = c <= r ? qk * row_query[i / 2] * shared.k_norm[c] : 0.0f;
          m[i] = c < r ? kk * row_key[i / 2] * shared.k_norm[c] : 0.0f;
        }
      });

  if (thread < kDeltaChunk) {
    // Scaled rows include decays and norms.
    float* const factors = reinterpret_cast<float*>(out + 2 * kDeltaMatrixBytes);
    factors[kBeta * kDeltaChunk + thread] = shared.beta[thread];
    factors[kScaledBeta * kDeltaChunk + thread] = shared.beta[thread];
    factors[kScaledQuery * kDeltaChunk + thread] = 1.0f;
    factors[kScaledKey * kDeltaChunk + thread] = 1.0f;
    factors[kLogDecay * kDeltaChunk + thread] = 0.0f;
    factors[kKeyNorm * kDeltaChunk + thread] = shared.k_norm[thread];
  }
}

template <class T, int kDimK>
void launch_delta_channel_matrices_for(const DeltaChunkParams& params, void* stream) {
  constexpr auto kKernel = delta_channel_matrices_kernel<T, kDimK>;
  constexpr int kBytes = sizeof(ChannelMatricesShared<kDimK>);
  allow_shared_memory<kKernel>(kBytes, "gated_delta_rule");
  launch_dependent<DeltaChunkParams>(
      kKernel, dim3(static_cast<unsigned>(params.num_slots), static_cast<unsigned>(params.delta.num_v_heads)),
      kMatricesThreads, kBytes, stream, params, "gated_delta_rule");
}

template <class T>
void launch_delta_channel_matrices(const DeltaChunkParams& params, void* stream) {
  if (params.delta.dim_k == 64) return launch_delta_channel_matrices_for<T, 64>(params, stream);
  launch_delta_channel_matrices_for<T, 128>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
