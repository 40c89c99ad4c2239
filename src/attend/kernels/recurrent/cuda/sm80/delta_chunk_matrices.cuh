// Matrices T and A of the chunk form (delta_chunk_kernel.h), in parallel for all chunks.
//
//   tile        a chunk of 64 tokens and a key head with all its value heads
//   warps       4, each with 16 rows of the chunk
//   registers   128: the products k k^T and q k^T of 16 rows, which all value heads share
//   shared      39 KB for head_dim_k 128: k; q, then blocks of M; gates
//   bytes       k and q once; 10 KB of matrices and 1.5 KB of factors per value head
//   bound       latency of the substitution, with 4 CTAs per SM
#pragma once

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/recurrent/cuda/sm80/delta_chunk_blocks.cuh"
#include "attend/kernels/recurrent/cuda/sm80/delta_chunk_kernel.h"

namespace attend::kernels::cuda::sm80 {

template <int kDimK>
struct MatricesShared {
  static constexpr int kStride = PaddedRows<kDimK>::kStride;

  alignas(16) char k[PaddedRows<kDimK>::kBytes];
  union {
    alignas(16) char q[PaddedRows<kDimK>::kBytes];
    MatrixBlocks blocks;  // of one value head, after the products of q
  };
  float log_decay[kMaxDeltaRatio][kDeltaChunk];  // G
  float beta[kMaxDeltaRatio][kDeltaChunk];
  float k_norm[kDeltaChunk], q_norm[kDeltaChunk];
};

template <class T, int kDimK>
__global__ void __launch_bounds__(kMatricesThreads, 4)
    delta_chunk_matrices_kernel(const __grid_constant__ DeltaChunkParams params) {
  using Shared = MatricesShared<kDimK>;
  ptx::launch_dependents();
  extern __shared__ __align__(16) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const DeltaParams& delta = params.delta;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int key_head = static_cast<int>(blockIdx.y), slot = static_cast<int>(blockIdx.x);
  // Rows of blocks of this warp. Later rows have more blocks, so they belong to another scheduler in each
  // CTA.
  const int warp = (thread / 32 + slot + key_head) % kMatricesWarps;
  ptx::griddepcontrol_wait();
  const DeltaChunkIndex index = find_delta_chunk(delta.batch, slot);
  if (index.request < 0) return;
  const DeltaChunk chunk = delta_chunk(step_request(delta.batch, index.request), index.chunk);

  const uint32_t k_shared = ptx::shared_address(shared.k), q_shared = ptx::shared_address(shared.q);
  copy_chunk_rows<T, kDimK, PaddedRows<kDimK>, kMatricesThreads>(delta.k, chunk, key_head, 0, k_shared,
                                                                 threadIdx.x);
  copy_chunk_rows<T, kDimK, PaddedRows<kDimK>, kMatricesThreads>(delta.q, chunk, key_head, 0, q_shared,
                                                                 threadIdx.x);
  ptx::cp_async_commit_group();
  for (int h = warp; h < delta.ratio; h += kMatricesWarps)
    chunk_gates<T>(delta, chunk, key_head, key_head * delta.ratio + h, shared.log_decay[h], shared.beta[h],
                   lane);
  ptx::cp_async_wait_group<0>();
  __syncthreads();
  const float k_norm = chunk_row_norm<T, kDimK>(shared.k, thread);
  const float q_norm = delta.q_scale * chunk_row_norm<T, kDimK>(shared.q, thread);
  if (thread % 2 == 0) {
    shared.k_norm[thread / 2] = k_norm;
    shared.q_norm[thread / 2] = q_norm;
  }

  // Products of this warp's 16 rows with the rows up to them.
  constexpr int kTiles = kDeltaChunk / 8;
  float kk[kTiles][4] = {}, qk[kTiles][4] = {};
  const uint32_t own_rows = static_cast<uint32_t>(warp * kBlock * Shared::kStride * 2);
#pragma unroll
  for (int step = 0; step < kDimK / 16; ++step) {
    uint32_t key[4], query[4];
    ptx::ldmatrix_x4(key, address_a<Shared::kStride>(k_shared + own_rows + step * 32, lane));
    ptx::ldmatrix_x4(query, address_a<Shared::kStride>(q_shared + own_rows + step * 32, lane));
#pragma unroll
    for (int block = 0; block < kMatricesWarps; ++block) {
      if (block > warp) continue;
      uint32_t b[4];
      ptx::ldmatrix_x4(
          b, address_b<Shared::kStride>(k_shared + block * kBlock * Shared::kStride * 2 + step * 32, lane));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        ptx::mma_m16n8k16(kk[2 * block + half], key, b[2 * half], b[2 * half + 1], T{});
        ptx::mma_m16n8k16(qk[2 * block + half], query, b[2 * half], b[2 * half + 1], T{});
      }
    }
  }

  const int row = warp * kBlock + lane / 4;  // and row + 8
  const int column = lane % 4 * 2;           // and column + 1, in each tile
  for (int h = 0; h < delta.ratio; ++h) {
    __syncthreads();  // norms and gates are written; the previous head's blocks are no longer read
    char* const out =
        params.workspace + (int64_t{slot} * delta.num_v_heads + key_head * delta.ratio + h) * kDeltaSlotBytes;
    const float* const log_decay = shared.log_decay[h];
    const float row_decay[2] = {log_decay[row], log_decay[row + 8]};
    const float row_key[2] = {shared.beta[h][row] * shared.k_norm[row],
                              shared.beta[h][row + 8] * shared.k_norm[row + 8]};
    const float row_query[2] = {shared.q_norm[row], shared.q_norm[row + 8]};
    store_chunk_matrices<T>(
        shared.blocks, out, warp, lane, [&](int block, int half, float(&a)[4], float(&m)[4]) {
          const int tile = 2 * block + half;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int r = row + i / 2 * 8, c = tile * 8 + column + i % 2;
            const float decay = shared.k_norm[c] * __expf(fminf(row_decay[i / 2] - log_decay[c], 0.0f));
            a[i] = c <= r ? qk[tile][i] * row_query[i / 2] * decay : 0.0f;
            m[i] = c < r ? kk[tile][i] * row_key[i / 2] * decay : 0.0f;
          }
        });

    if (thread < kDeltaChunk) {
      float* const factors = reinterpret_cast<float*>(out + 2 * kDeltaMatrixBytes);
      const float sum = log_decay[thread], decay = expf(sum), beta = shared.beta[h][thread];
      const float norm = shared.k_norm[thread];
      factors[kBeta * kDeltaChunk + thread] = beta;
      factors[kScaledBeta * kDeltaChunk + thread] = beta * decay * norm;
      factors[kScaledQuery * kDeltaChunk + thread] = decay * shared.q_norm[thread];
      factors[kScaledKey * kDeltaChunk + thread] = expf(fminf(log_decay[kDeltaChunk - 1] - sum, 0.0f)) * norm;
      factors[kLogDecay * kDeltaChunk + thread] = sum;
      factors[kKeyNorm * kDeltaChunk + thread] = norm;
    }
  }
}

template <class T, int kDimK>
void launch_delta_chunk_matrices_for(const DeltaChunkParams& params, void* stream) {
  constexpr auto kKernel = delta_chunk_matrices_kernel<T, kDimK>;
  constexpr int kBytes = sizeof(MatricesShared<kDimK>);
  allow_shared_memory<kKernel>(kBytes, "gated_delta_rule");
  launch_dependent<DeltaChunkParams>(
      kKernel,
      dim3(static_cast<unsigned>(params.num_slots),
           static_cast<unsigned>(params.delta.num_v_heads / params.delta.ratio)),
      kMatricesThreads, kBytes, stream, params, "gated_delta_rule");
}

template <class T>
void launch_delta_chunk_matrices(const DeltaChunkParams& params, void* stream) {
  if (params.delta.dim_k == 64) return launch_delta_chunk_matrices_for<T, 64>(params, stream);
  if (params.delta.dim_k == 96) return launch_delta_chunk_matrices_for<T, 96>(params, stream);
  launch_delta_chunk_matrices_for<T, 128>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
