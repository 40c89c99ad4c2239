// States and outputs of the chunk form (delta_chunk_kernel.h): walks the chunks of a request.
//
//   tile        16 to 64 rows of a value head's state per CTA; chunks of 64 tokens
//   warps       one per 16 rows of the state, and 2 or 4 that load the next chunks
//   registers   about 200 per computing thread: 16 rows of S in float32, and of X and the output
//   shared      2 or 3 stages of 56 KB for head_dim_k 128 and 64 rows
//   bytes       per chunk: q, k, T and A from L2 for each CTA of the head; its columns of v and out once
//   bound       shared memory and tensor cores of one warp per scheduler; latency with fewer rows
//
// A warp computes everything transposed, with its 16 rows of S as operand A: X^T = S k^T, V^T = X^T T^T,
// out^T = S q^T + V^T A^T and S += V^T k. The registers of each product are operand A of the next one, so
// warps exchange nothing, and only wait for loads.
#pragma once

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_chunks.cuh"
#include "attend/kernels/recurrent/cuda/sm80/copy_chunk_rows.cuh"
#include "attend/kernels/recurrent/cuda/sm80/delta_chunk_kernel.h"
#include "attend/kernels/recurrent/cuda/sm80/delta_tiles.cuh"

namespace attend::kernels::cuda::sm80 {

// Warps that load: with few rows, two CTAs share the registers of an SM.
template <int kSlice>
inline constexpr int kScanLoadWarps = kSlice == 64 ? 4 : 2;
inline constexpr int kChunkTiles = kDeltaChunk / 8, kChunkBlocks = kDeltaChunk / 16;

template <class T, int kDimK, int kSlice>
struct ScanStage {
  static constexpr int kStride = kPaddedColumns<kDimK>, kVStride = kPaddedColumns<kSlice>;

  alignas(16) T k[kDeltaChunk * kStride];
  alignas(16) T q[kDeltaChunk * kStride];
  alignas(16) T v[kDeltaChunk * kVStride];
  // Workspace of the chunk: T, A, factors.
  alignas(16) char matrices[2 * kDeltaMatrixBytes];
  alignas(16) float factors[kNumDeltaFactors][kDeltaChunk];
};

template <int kSlice>
inline constexpr int kScanStages = delta_scan_stages(kSlice);

// The 16 rows of S of a warp, in tiles of d. Row lane / 4 and that + 8, columns 2 (lane % 4) and that + 1.
template <int kDimK>
struct ScanState {
  float tiles[kDimK / 8][4];

  // `rows`: address of this lane's elements of tile 0.
  __device__ void load(const float* rows) {
#pragma unroll
    for (int tile = 0; tile < kDimK / 8; ++tile)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 pair = __ldcg(reinterpret_cast<const float2*>(rows + half * 8 * kDimK + tile * 8));
        tiles[tile][2 * half] = pair.x;
        tiles[tile][2 * half + 1] = pair.y;
      }
  }
  __device__ void clear() {
#pragma unroll
    for (auto& tile : tiles)
#pragma unroll
      for (float& x : tile) x = 0.0f;
  }
  static __device__ void store_tile(float* rows, int tile, const float (&values)[4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<float2*>(rows + half * 8 * kDimK + tile * 8) =
          make_float2(values[2 * half], values[2 * half + 1]);
  }
  __device__ void store(float* rows) const {
#pragma unroll
    for (int tile = 0; tile < kDimK / 8; ++tile) store_tile(rows, tile, tiles[tile]);
  }
};

// values[j] *= factors[j] of each column, a token.
__device__ inline void scale_columns(float (&values)[kChunkTiles][4], const float* factors, int column) {
#pragma unroll
  for (int tile = 0; tile < kChunkTiles; ++tile) {
    const float2 pair = *reinterpret_cast<const float2*>(factors + tile * 8 + column);
    values[tile][0] *= pair.x;
    values[tile][1] *= pair.y;
    values[tile][2] *= pair.x;
    values[tile][3] *= pair.y;
  }
}

template <class T>
__device__ inline void to_operands_a(const float (&values)[kChunkTiles][4], uint32_t (&a)[kChunkBlocks][4]) {
#pragma unroll
  for (int block = 0; block < kChunkBlocks; ++block)
    to_operand_a<T>(values[2 * block], values[2 * block + 1], a[block]);
}

// sum += a L^T for a lower triangular matrix L of the workspace.
template <class T>
__device__ inline void multiply_lower(const uint32_t (&a)[kChunkBlocks][4], uint32_t matrix,
                                      float (&sum)[kChunkTiles][4], int lane) {
#pragma unroll
  for (int k = 0; k < kChunkBlocks; ++k)
#pragma unroll
    for (int i = k; i < kChunkBlocks; ++i) {
      const uint4 b = ptx::ld_shared_16(
          matrix + static_cast<uint32_t>((i * (i + 1) / 2 + k) * kDeltaBlockBytes + lane * 16));
      ptx::mma_m16n8k16(sum[2 * i], a[k], b.x, b.y, T{});
      ptx::mma_m16n8k16(sum[2 * i + 1], a[k], b.z, b.w, T{});
    }
}

template <class T, int kDimK, int kSlice>
class DeltaChunkScan {
 public:
  using Stage = ScanStage<T, kDimK, kSlice>;

  __device__ DeltaChunkScan(const DeltaParams& params, int head, int first_row, int warp, int lane)
      : params_(params), head_(head), row_(first_row + warp * 16), warp_(warp), lane_(lane) {}

  __device__ void start(const StepRequest& request) {
    if (request.load == 0)
      state_.clear();
    else
      state_.load(rows_of(request.load));
  }
  __device__ void finish(const StepRequest& request) const { state_.store(rows_of(request.row)); }

  __device__ void step(Stage& stage, const DeltaChunk& chunk) {
    const int column = lane_ % 4 * 2;  // of this lane in each tile
    const uint32_t k = ptx::shared_address(stage.k), q = ptx::shared_address(stage.q);
    // Slots to save of rows lane and lane + 32.
    int save_slots[2] = {};
    if (params_.batch.save_slots != nullptr)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (chunk.has(lane_ + 32 * i)) save_slots[i] = params_.batch.save_slots[chunk.first + lane_ + 32 * i];

    float x[kChunkTiles][4] = {}, out[kChunkTiles][4] = {};
#pragma unroll
    for (int step = 0; step < kDimK / 16; ++step) {
      uint32_t a[4];
      to_operand_a<T>(state_.tiles[2 * step], state_.tiles[2 * step + 1], a);
      multiply_rows(a, k + step * 32, x);
      multiply_rows(a, q + step * 32, out);
    }
    scale_columns(out, stage.factors[kScaledQuery], column);
    subtract_from_v(stage, column, x);

    uint32_t a[kChunkBlocks][4];
    to_operands_a<T>(x, a);
    float v[kChunkTiles][4] = {};
    const uint32_t matrices = ptx::shared_address(stage.matrices);
    multiply_lower<T>(a, matrices, v, lane_);
    to_operands_a<T>(v, a);
    multiply_lower<T>(a, matrices + kDeltaMatrixBytes, out, lane_);
    store_out(chunk, out);

#pragma unroll
    for (int i = 0; i < 2; ++i) {
      unsigned saves = __ballot_sync(0xffffffffu, save_slots[i] != 0);
      for (; saves != 0; saves &= saves - 1) {
        const int owner = __ffs(static_cast<int>(saves)) - 1;
        save(stage, v, owner + 32 * i, __shfl_sync(0xffffffffu, save_slots[i], owner));
      }
    }

    scale_columns(v, stage.factors[kScaledKey], column);
    to_operands_a<T>(v, a);
    const float decay = __expf(stage.factors[kLogDecay][kDeltaChunk - 1]);
#pragma unroll
    for (auto& tile : state_.tiles)
#pragma unroll
      for (float& s : tile) s *= decay;
#pragma unroll
    for (int block = 0; block < kChunkBlocks; ++block)
#pragma unroll
      for (int pair = 0; pair < kDimK / 16; ++pair)
        add_outer(a[block], k, block, pair, state_.tiles[2 * pair], state_.tiles[2 * pair + 1]);
  }

 private:
  __device__ float* rows_of(int slot) const {
    return params_.state +
           ((int64_t{slot} * params_.num_v_heads + head_) * params_.dim_v + row_ + lane_ / 4) * kDimK +
           lane_ % 4 * 2;
  }

  // sum += a rows^T, with 16 columns of all rows of the chunk.
  __device__ void multiply_rows(const uint32_t (&a)[4], uint32_t rows, float (&sum)[kChunkTiles][4]) const {
#pragma unroll
    for (int block = 0; block < kChunkBlocks; ++block) {
      uint32_t b[4];
      ptx::ldmatrix_x4(b, address_b<Stage::kStride>(rows + block * 16 * Stage::kStride * 2, lane_));
      ptx::mma_m16n8k16(sum[2 * block], a, b[0], b[1], T{});
      ptx::mma_m16n8k16(sum[2 * block + 1], a, b[2], b[3], T{});
    }
  }

  // Two tiles of S += a k, with 16 tokens of the chunk and 16 columns of k.
  __device__ void add_outer(const uint32_t (&a)[4], uint32_t k, int block, int pair, float (&left)[4],
                            float (&right)[4]) const {
    uint32_t b[4];
    ptx::ldmatrix_x4_trans(
        b, address_a<Stage::kStride>(k + (block * 16 * Stage::kStride + pair * 16) * 2, lane_));
    ptx::mma_m16n8k16(left, a, b[0], b[1], T{});
    ptx::mma_m16n8k16(right, a, b[2], b[3], T{});
  }

  // x = beta v - scaled beta x.
  __device__ void subtract_from_v(Stage& stage, int column, float (&x)[kChunkTiles][4]) const {
    const uint32_t v = ptx::shared_address(stage.v) + warp_ * 32;
#pragma unroll
    for (int block = 0; block < kChunkBlocks; ++block) {
      uint32_t b[4];
      ptx::ldmatrix_x4_trans(b, address_b<Stage::kVStride>(v + block * 16 * Stage::kVStride * 2, lane_));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int tile = 2 * block + half;
        const float2 beta = *reinterpret_cast<const float2*>(stage.factors[kBeta] + tile * 8 + column);
        const float2 scaled =
            *reinterpret_cast<const float2*>(stage.factors[kScaledBeta] + tile * 8 + column);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float2 values = unpack_pair<T>(b[2 * half + i]);
          x[tile][2 * i] = beta.x * values.x - scaled.x * x[tile][2 * i];
          x[tile][2 * i + 1] = beta.y * values.y - scaled.y * x[tile][2 * i + 1];
        }
      }
    }
  }

  __device__ void store_out(const DeltaChunk& chunk, const float (&out)[kChunkTiles][4]) const {
    T* const to = static_cast<T*>(params_.out.data) + head_ * params_.out.head_stride + row_ + lane_ % 4 * 2;
#pragma unroll
    for (int tile = 0; tile < kChunkTiles; ++tile) {
      const int i = tile * 8 + lane_ / 4;
      const uint32_t low = ptx::transpose(pack_pair(out[tile][0], out[tile][1], T{}));
      const uint32_t high = ptx::transpose(pack_pair(out[tile][2], out[tile][3], T{}));
      if (!chunk.has(i)) continue;
      T* const token = to + (chunk.first + i) * params_.out.token_stride;
      *reinterpret_cast<uint32_t*>(token) = low;
      *reinterpret_cast<uint32_t*>(token + 8) = high;
    }
  }

  // Writes the state after row `last` of the chunk to a slot.
  __device__ void save(Stage& stage, const float (&v)[kChunkTiles][4], int last, int slot) const {
    const float* const log_decay = stage.factors[kLogDecay];
    const float sum = log_decay[last], decay = __expf(sum);
    float scaled[kChunkTiles][4];
#pragma unroll
    for (int tile = 0; tile < kChunkTiles; ++tile)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int j = tile * 8 + lane_ % 4 * 2 + i;
        const float factor =
            j <= last ? __expf(fminf(sum - log_decay[j], 0.0f)) * stage.factors[kKeyNorm][j] : 0.0f;
        scaled[tile][i] = v[tile][i] * factor;
        scaled[tile][i + 2] = v[tile][i + 2] * factor;
      }
    uint32_t a[kChunkBlocks][4];
    to_operands_a<T>(scaled, a);
    float* const rows = rows_of(slot);
    const uint32_t k = ptx::shared_address(stage.k);
#pragma unroll
    for (int pair = 0; pair < kDimK / 16; ++pair) {
      float tiles[2][4];
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < 4; ++i) tiles[half][i] = decay * state_.tiles[2 * pair + half][i];
#pragma unroll
      for (int block = 0; block < kChunkBlocks; ++block)
        add_outer(a[block], k, block, pair, tiles[0], tiles[1]);
      ScanState<kDimK>::store_tile(rows, 2 * pair, tiles[0]);
      ScanState<kDimK>::store_tile(rows, 2 * pair + 1, tiles[1]);
    }
  }

  const DeltaParams& params_;
  int head_, row_, warp_, lane_;  // row_: first row of this warp
  ScanState<kDimK> state_;
};

template <class T, int kDimK, int kSlice>
__device__ inline void load_chunk(const DeltaChunkParams& params, const DeltaChunk& chunk, int head,
                                  int first_row, int slot, ScanStage<T, kDimK, kSlice>& stage, int thread) {
  constexpr int kThreads = 32 * kScanLoadWarps<kSlice>;
  const DeltaParams& delta = params.delta;
  const int key_head = head / delta.ratio;
  const char* const from = params.workspace + (int64_t{slot} * delta.num_v_heads + head) * kDeltaSlotBytes;
  copy_chunk_rows<T, kDimK>(delta.k, chunk, key_head, 0, ptx::shared_address(stage.k), thread, kThreads);
  copy_chunk_rows<T, kDimK>(delta.q, chunk, key_head, 0, ptx::shared_address(stage.q), thread, kThreads);
  copy_chunk_rows<T, kSlice>(delta.v, chunk, head, first_row, ptx::shared_address(stage.v), thread, kThreads);
  const uint32_t matrices = ptx::shared_address(stage.matrices);
  for (int i = thread * 16; i < kDeltaSlotBytes; i += kThreads * 16)
    ptx::cp_async_16(matrices + static_cast<uint32_t>(i), from + i);
  ptx::cp_async_commit_group();
}

template <class T, int kDimK, int kSlice>
__global__ void __launch_bounds__(2 * kSlice + 32 * kScanLoadWarps<kSlice>, 1)
    delta_chunk_scan_kernel(const __grid_constant__ DeltaChunkParams params) {
  using Stage = ScanStage<T, kDimK, kSlice>;
  constexpr int kStages = kScanStages<kSlice>, kWarps = kSlice / 16;
  static_assert(offsetof(Stage, factors) == offsetof(Stage, matrices) + 2 * kDeltaMatrixBytes);
  ptx::launch_dependents();
  extern __shared__ __align__(16) char memory[];
  Stage* const stages = reinterpret_cast<Stage*>(memory);
  const DeltaParams& delta = params.delta;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const int slices = delta.dim_v / kSlice, head = static_cast<int>(blockIdx.x) / slices;
  const int first_row = static_cast<int>(blockIdx.x) % slices * kSlice;
  ptx::griddepcontrol_wait();
  const StepRequest request = step_request(delta.batch, static_cast<int>(blockIdx.y));
  const int num_chunks = num_delta_chunks(request);
  if (num_chunks == 0) return;

  if (warp >= kWarps) {
    const int slot = first_delta_slot(delta.batch, static_cast<int>(blockIdx.y));
    const auto load = [&](int c) {
      if (c < num_chunks)
        load_chunk<T, kDimK, kSlice>(params, delta_chunk(request, c), head, first_row, slot + c,
                                     stages[c % kStages], thread - 32 * kWarps);
      else
        ptx::cp_async_commit_group();
    };
#pragma unroll
    for (int c = 0; c < kStages - 1; ++c) load(c);
    for (int c = 0; c < num_chunks; ++c) {
      ptx::cp_async_wait_group<kStages - 2>();
      __syncthreads();  // chunk c is loaded, and chunk c - 1 is no longer read
      load(c + kStages - 1);
    }
    return;
  }
  DeltaChunkScan<T, kDimK, kSlice> scan(delta, head, first_row, warp, thread % 32);
  scan.start(request);
  for (int c = 0; c < num_chunks; ++c) {
    __syncthreads();
    scan.step(stages[c % kStages], delta_chunk(request, c));
  }
  scan.finish(request);
}

template <class T, int kDimK, int kSlice>
void launch_delta_chunk_scan_for(const DeltaChunkParams& params, void* stream) {
  constexpr auto kKernel = delta_chunk_scan_kernel<T, kDimK, kSlice>;
  constexpr int kBytes = delta_scan_shared_bytes(kDimK, kSlice);
  static_assert(kBytes == kScanStages<kSlice> * sizeof(ScanStage<T, kDimK, kSlice>));
  allow_shared_memory<kKernel>(kBytes, "gated_delta_rule");
  const DeltaParams& delta = params.delta;
  launch_dependent<DeltaChunkParams>(kKernel,
                                     dim3(static_cast<unsigned>(delta.num_v_heads * delta.dim_v / kSlice),
                                          static_cast<unsigned>(delta.batch.num_reqs)),
                                     2 * kSlice + 32 * kScanLoadWarps<kSlice>, kBytes, stream, params,
                                     "gated_delta_rule");
}

template <class T, int kDimK>
void launch_delta_chunk_scan_for_dim(const DeltaChunkParams& params, int slice, void* stream) {
  if (slice == 64) return launch_delta_chunk_scan_for<T, kDimK, 64>(params, stream);
  if (slice == 32) return launch_delta_chunk_scan_for<T, kDimK, 32>(params, stream);
  launch_delta_chunk_scan_for<T, kDimK, 16>(params, stream);
}

template <class T>
void launch_delta_chunk_scan(const DeltaChunkParams& params, int slice, void* stream) {
  if (params.delta.dim_k == 64) return launch_delta_chunk_scan_for_dim<T, 64>(params, slice, stream);
  if (params.delta.dim_k == 96) return launch_delta_chunk_scan_for_dim<T, 96>(params, slice, stream);
  launch_delta_chunk_scan_for_dim<T, 128>(params, slice, stream);
}

}  // namespace attend::kernels::cuda::sm80
