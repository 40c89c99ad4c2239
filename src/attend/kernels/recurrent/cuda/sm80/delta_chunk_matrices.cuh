// Matrices T and A of the chunk form (delta_chunk_kernel.h), in parallel for all chunks.
//
//   tile        a chunk of 64 tokens and a key head with all its value heads
//   warps       4, each with 16 rows of the chunk
//   registers   128: the products k k^T and q k^T of 16 rows, which all value heads share
//   shared      39 KB for head_dim_k 128: k; q, then blocks of M; gates
//   bytes       k and q once; 10 KB of matrices and 1.5 KB of factors per value head
//   bound       latency of the substitution, with 4 CTAs per SM
//
// T is computed in blocks of 16 x 16. Diagonal blocks are inverted by substitution in float32. Row w of
// blocks, by warp w: T[w][j] = -(sum over j < k <= w of T[w][k] M[k][j]) T[j][j], with products in float16.
// Elements of T and M are at most 2, since each step of the recurrence is a contraction.
#pragma once

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_chunks.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_gates.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_rows.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_tiles.cuh"
#include "attend/kernels/recurrent/cuda/sm80/delta_chunk_kernel.h"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kMatricesWarps = 4, kMatricesThreads = 32 * kMatricesWarps;
inline constexpr int kBlock = 16;  // rows and columns of a block

template <class T, int kDimK>
struct MatricesShared {
  static constexpr int kStride = PaddedRows<kDimK>::kStride, kMStride = PaddedRows<kDeltaChunk>::kStride,
                       kInverseStride = PaddedRows<kBlock>::kStride, kDiagonalStride = kBlock + 4;

  // Matrices of one value head, after the products of q.
  struct Blocks {
    alignas(16) __half m[kDeltaChunk * kMStride];
    alignas(16) __half inverses[kMatricesWarps][kBlock * kInverseStride];   // of diagonal blocks of I + M
    alignas(16) float diagonals[kMatricesWarps][kBlock * kDiagonalStride];  // M, then the inverses
  };
  alignas(16) char k[PaddedRows<kDimK>::kBytes];
  union {
    alignas(16) char q[PaddedRows<kDimK>::kBytes];
    Blocks blocks;
  };
  float log_decay[kMaxDeltaRatio][kDeltaChunk];  // G
  float beta[kMaxDeltaRatio][kDeltaChunk];
  float k_norm[kDeltaChunk], q_norm[kDeltaChunk];
};

// Gates of a value head for the whole chunk, and the running sums of the logarithms of its decays. One warp.
template <class T>
__device__ inline void chunk_gates(const DeltaParams& params, const DeltaChunk& chunk, int key_head, int head,
                                   float* log_decay, float* betas, int lane) {
  const float rate = expf(params.a_log[head]);
  float sums[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    DeltaGates gates{};
    if (chunk.has(2 * lane + i))
      gates = delta_gates<T>(params, chunk.first + 2 * lane + i, key_head, head, rate);
    sums[i] = gates.log_decay;
    betas[2 * lane + i] = gates.beta;
  }
  float end = sums[0] + sums[1];
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float other = __shfl_up_sync(0xffffffffu, end, step);
    if (lane >= step) end += other;
  }
  float before = __shfl_up_sync(0xffffffffu, end, 1);
  if (lane == 0) before = 0.0f;
  log_decay[2 * lane] = before + sums[0];
  log_decay[2 * lane + 1] = end;
}

// Norm factor of row `thread` / 2, in both threads of the row.
template <class T, int kDimK>
__device__ inline float chunk_row_norm(const char* rows, int thread) {
  constexpr int kHalf = kDimK / 2;
  const T* const half =
      reinterpret_cast<const T*>(rows) + thread / 2 * PaddedRows<kDimK>::kStride + thread % 2 * kHalf;
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kHalf; c += 8) {
    const uint4 bits = *reinterpret_cast<const uint4*>(half + c);
    const T* const elements = reinterpret_cast<const T*>(&bits);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float x = static_cast<float>(elements[i]);
      sum = fmaf(x, x, sum);
    }
  }
  return delta_norm(sum + __shfl_xor_sync(0xffffffffu, sum, 1));
}

// Inverts the unit lower triangular I + M of one block in place, one column per lane of 16, and rounds a
// copy.
template <int kStride, int kRoundedStride>
__device__ inline void invert_block(float* m, __half* rounded, int lane) {
  const int column = lane % kBlock;
  float x[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    float even = i == column ? 1.0f : 0.0f, odd = 0.0f;
#pragma unroll
    for (int j = 0; j + 1 < i; j += 2) {
      const float2 pair = *reinterpret_cast<const float2*>(m + i * kStride + j);
      even = fmaf(-pair.x, x[j], even);
      odd = fmaf(-pair.y, x[j + 1], odd);
    }
    if (i % 2 != 0) even = fmaf(-m[i * kStride + i - 1], x[i - 1], even);
    x[i] = even + odd;
  }
  __syncwarp();
  if (lane < kBlock) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
      m[i * kStride + column] = x[i];
      rounded[i * kRoundedStride + column] = __float2half_rn(x[i]);
    }
  }
  __syncwarp();
}

template <class T, int kDimK>
__global__ void __launch_bounds__(kMatricesThreads, 4)
    delta_chunk_matrices_kernel(const __grid_constant__ DeltaChunkParams params) {
  using Shared = MatricesShared<T, kDimK>;
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
  float* const diagonal = shared.blocks.diagonals[warp];
  for (int h = 0; h < delta.ratio; ++h) {
    __syncthreads();  // norms and gates are written; the previous head's blocks are no longer read
    char* const out =
        params.workspace + (int64_t{slot} * delta.num_v_heads + key_head * delta.ratio + h) * kDeltaSlotBytes;
    const int first_block = warp * (warp + 1) / 2;
    const auto store_block = [&](int matrix, int block, const uint4& bits) {
      *reinterpret_cast<uint4*>(out + matrix * kDeltaMatrixBytes + (first_block + block) * kDeltaBlockBytes +
                                lane * 16) = bits;
    };
    const float* const log_decay = shared.log_decay[h];
    const float row_decay[2] = {log_decay[row], log_decay[row + 8]};
    const float row_key[2] = {shared.beta[h][row] * shared.k_norm[row],
                              shared.beta[h][row + 8] * shared.k_norm[row + 8]};
    const float row_query[2] = {shared.q_norm[row], shared.q_norm[row + 8]};
#pragma unroll
    for (int block = 0; block < kMatricesWarps; ++block) {
      if (block > warp) continue;
      float a[2][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int tile = 2 * block + half;
        float m[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int r = row + i / 2 * 8, c = tile * 8 + column + i % 2;
          const float decay = shared.k_norm[c] * __expf(fminf(row_decay[i / 2] - log_decay[c], 0.0f));
          a[half][i] = c <= r ? qk[tile][i] * row_query[i / 2] * decay : 0.0f;
          m[i] = c < r ? kk[tile][i] * row_key[i / 2] * decay : 0.0f;
        }
        if (block == warp) {
          float* const to = diagonal + lane / 4 * Shared::kDiagonalStride + half * 8 + column;
          *reinterpret_cast<float2*>(to) = make_float2(m[0], m[1]);
          *reinterpret_cast<float2*>(to + 8 * Shared::kDiagonalStride) = make_float2(m[2], m[3]);
        } else {
          __half* const to = shared.blocks.m + row * Shared::kMStride + tile * 8 + column;
          *reinterpret_cast<__half2*>(to) = __floats2half2_rn(m[0], m[1]);
          *reinterpret_cast<__half2*>(to + 8 * Shared::kMStride) = __floats2half2_rn(m[2], m[3]);
        }
      }
      store_block(1, block, to_operand_b<T>(a[0], a[1]));
    }
    __syncwarp();
    invert_block<Shared::kDiagonalStride, Shared::kInverseStride>(diagonal, shared.blocks.inverses[warp],
                                                                  lane);
    __syncthreads();

    uint32_t row_blocks[kMatricesWarps][4];  // T[warp][k] as operand A
    const uint32_t inverses = ptx::shared_address(shared.blocks.inverses),
                   m = ptx::shared_address(shared.blocks.m);
    constexpr int kInverseBytes = kBlock * Shared::kInverseStride * 2;
#pragma unroll
    for (int block = kMatricesWarps - 1; block >= 0; --block) {
      if (block > warp) continue;
      float t[2][4];
      if (block == warp) {
        ptx::ldmatrix_x4(row_blocks[block],
                         address_a<Shared::kInverseStride>(inverses + warp * kInverseBytes, lane));
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            t[half][i] =
                diagonal[(lane / 4 + i / 2 * 8) * Shared::kDiagonalStride + half * 8 + column + i % 2];
      } else {
        float sum[2][4] = {};
#pragma unroll
        for (int k = block + 1; k < kMatricesWarps; ++k) {
          if (k > warp) continue;
          uint32_t b[4];
          ptx::ldmatrix_x4_trans(
              b, address_a<Shared::kMStride>(m + (k * kBlock * Shared::kMStride + block * kBlock) * 2, lane));
          ptx::mma_m16n8k16(sum[0], row_blocks[k], b[0], b[1], __half{});
          ptx::mma_m16n8k16(sum[1], row_blocks[k], b[2], b[3], __half{});
        }
        uint32_t a[4], b[4];
        to_operand_a<__half>(sum[0], sum[1], a);
        ptx::ldmatrix_x4_trans(b, address_a<Shared::kInverseStride>(inverses + block * kInverseBytes, lane));
        float product[2][4] = {};
        ptx::mma_m16n8k16(product[0], a, b[0], b[1], __half{});
        ptx::mma_m16n8k16(product[1], a, b[2], b[3], __half{});
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int i = 0; i < 4; ++i) t[half][i] = -product[half][i];
        to_operand_a<__half>(t[0], t[1], row_blocks[block]);
      }
      store_block(0, block, to_operand_b<T>(t[0], t[1]));
    }

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
  constexpr int kBytes = sizeof(MatricesShared<T, kDimK>);
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
