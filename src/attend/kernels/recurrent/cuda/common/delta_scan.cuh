// The scan over chunks (delta_chunk_layout.h): parts that its kernels share.
//
// A warp computes everything transposed, with its 16 rows of S as operand A: X^T = S k^T, V^T = X^T T^T,
// out^T = S q^T + V^T A^T and S += V^T k. The registers of each product are operand A of the next one, so
// computing warps exchange nothing, and only wait for the warps that load chunks.
#pragma once

#include "attend/kernels/common/cuda/ptx/barrier.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_chunk_layout.h"
#include "attend/kernels/recurrent/cuda/common/delta_kernels.h"
#include "attend/kernels/recurrent/cuda/common/delta_rows.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_tiles.cuh"

namespace attend::kernels::cuda {

inline constexpr int kChunkTiles = kDeltaChunk / 8, kChunkBlocks = kDeltaChunk / 16;

// A chunk in shared memory. KeyRows: layout of k and q.
template <class KeyRows_, int kSlice_>
struct DeltaStage {
  static constexpr int kSlice = kSlice_;
  static constexpr bool kPerChannel = false;
  using KeyRows = KeyRows_;
  using ValueRows = PaddedRows<kSlice>;

  alignas(KeyRows::kAlignment) char k[KeyRows::kBytes];
  alignas(KeyRows::kAlignment) char q[KeyRows::kBytes];
  alignas(16) char v[ValueRows::kBytes];
  // Workspace of the chunk.
  alignas(16) char matrices[2 * kDeltaMatrixBytes];
  alignas(16) float factors[kNumDeltaFactors][kDeltaChunk];
};

// The same with decays per channel: k and q are those of X and of the output.
template <class KeyRows_, int kSlice_, int kDimK>
struct DeltaChannelStage {
  static constexpr int kSlice = kSlice_;
  static constexpr bool kPerChannel = true;
  using KeyRows = KeyRows_;
  using ValueRows = PaddedRows<kSlice>;

  alignas(KeyRows::kAlignment) char k[KeyRows::kBytes];
  alignas(KeyRows::kAlignment) char q[KeyRows::kBytes];
  alignas(KeyRows::kAlignment) char written_k[KeyRows::kBytes];  // of the state after the chunk
  alignas(16) char v[ValueRows::kBytes];
  // Workspace of the chunk, up to the rows of k and q.
  alignas(16) char matrices[2 * kDeltaMatrixBytes];
  alignas(16) float factors[kNumDeltaFactors][kDeltaChunk];
  alignas(16) float decays[kDimK];  // over the whole chunk
};

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
  __device__ void scale(float factor) {
#pragma unroll
    for (auto& tile : tiles)
#pragma unroll
      for (float& x : tile) x *= factor;
  }
  // `column`: of this lane in tile 0.
  __device__ void scale_columns(const float* factors, int column) {
#pragma unroll
    for (int tile = 0; tile < kDimK / 8; ++tile) {
      const float2 pair = *reinterpret_cast<const float2*>(factors + tile * 8 + column);
      tiles[tile][0] *= pair.x;
      tiles[tile][1] *= pair.y;
      tiles[tile][2] *= pair.x;
      tiles[tile][3] *= pair.y;
    }
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

// A computing warp, with 16 rows of the state of a head.
template <class T, int kDimK, class Stage>
class DeltaScanWarp {
 public:
  // `first_row`: of the CTA's slice.
  __device__ DeltaScanWarp(const DeltaParams& params, int head, int first_row, int warp, int lane)
      : params_(params), head_(head), row_(first_row + warp * 16), slice_row_(warp * 16), lane_(lane) {}

  __device__ void start(const StepRequest& request) {
    if (request.load == 0)
      state_.clear();
    else
      state_.load(rows_of(request.load));
  }
  __device__ void finish(const StepRequest& request) const { state_.store(rows_of(request.row)); }

 protected:
  using KeyRows = typename Stage::KeyRows;
  using ValueRows = typename Stage::ValueRows;

  __device__ float* rows_of(int slot) const {
    return params_.state +
           ((int64_t{slot} * params_.num_v_heads + head_) * params_.dim_v + row_ + lane_ / 4) * kDimK +
           lane_ % 4 * 2;
  }

  // Slots to save of rows lane and lane + 32 of the chunk.
  __device__ void load_save_slots(const DeltaChunk& chunk) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = lane_ + 32 * i;
      const bool exists = params_.batch.save_slots != nullptr && chunk.has(row);
      save_slots_[i] = exists ? params_.batch.save_slots[chunk.first + row] : 0;
    }
  }

  // Two tiles of S += a k, with 16 tokens of the chunk and 16 columns of k.
  __device__ void add_outer(const uint32_t (&a)[4], uint32_t k, int block, int pair, float (&left)[4],
                            float (&right)[4]) const {
    uint32_t b[4];
    ptx::ldmatrix_x4_trans(b, k + KeyRows::offset(block * 16 + (lane_ & 15), pair * 16 + (lane_ >> 4) * 8));
    ptx::mma_m16n8k16(left, a, b[0], b[1], T{});
    ptx::mma_m16n8k16(right, a, b[2], b[3], T{});
  }

  // x = beta v - scaled beta x.
  __device__ void subtract_from_v(const Stage& stage, int column, float (&x)[kChunkTiles][4]) const {
    const uint32_t v = ptx::shared_address(stage.v);
#pragma unroll
    for (int block = 0; block < kChunkBlocks; ++block) {
      uint32_t b[4];
      ptx::ldmatrix_x4_trans(b, v + ValueRows::offset(block * 16 + (lane_ & 7) + (lane_ >> 4) * 8,
                                                      slice_row_ + (lane_ >> 3 & 1) * 8));
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

  // Writes the states that the step saves in this chunk. The state is still the one before the chunk.
  __device__ void save_states(const Stage& stage, const float (&v)[kChunkTiles][4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      unsigned saves = __ballot_sync(0xffffffffu, save_slots_[i] != 0);
      for (; saves != 0; saves &= saves - 1) {
        const int owner = __ffs(static_cast<int>(saves)) - 1;
        save(stage, v, owner + 32 * i, __shfl_sync(0xffffffffu, save_slots_[i], owner));
      }
    }
  }

  // Returns the decay over the whole chunk.
  static __device__ float chunk_decay(const Stage& stage) {
    return __expf(stage.factors[kLogDecay][kDeltaChunk - 1]);
  }

  const DeltaParams& params_;
  int head_, row_, slice_row_, lane_;  // row_, slice_row_: first row of this warp, in the head and the slice
  int save_slots_[2];
  ScanState<kDimK> state_;

 private:
  // Writes the state after row `last` of the chunk to a slot.
  __device__ void save(const Stage& stage, const float (&v)[kChunkTiles][4], int last, int slot) const {
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
};

// Starts to load a chunk and its workspace. Called by kThreads threads.
template <class T, int kDimK, int kThreads, class Stage>
__device__ inline void load_delta_chunk(const DeltaChunkParams& params, const DeltaChunk& chunk, int head,
                                        int first_row, int slot, Stage& stage, unsigned thread) {
  using KeyRows = typename Stage::KeyRows;
  const DeltaParams& delta = params.delta;
  const char* const from = params.workspace + (int64_t{slot} * delta.num_v_heads + head) *
                                                  kDeltaSlotBytesOf<kDimK, Stage::kPerChannel>;
  const auto load_rows = [&](const TokenRows& rows, const DeltaChunk& tokens, int of, char* to) {
    copy_chunk_rows<T, kDimK, KeyRows, kThreads>(rows, tokens, of, 0, ptx::shared_address(to), thread);
  };
  if constexpr (Stage::kPerChannel) {
    constexpr DeltaChunk kAllRows{0, 0, kDeltaChunk};
    const auto scaled_rows = [&](int index) {
      return TokenRows{from + kDeltaRowsOffset<kDimK> + index * kDeltaChunk * kDimK * 2, kDimK, 0};
    };
    load_rows(scaled_rows(0), kAllRows, 0, stage.k);
    load_rows(scaled_rows(1), kAllRows, 0, stage.q);
    load_rows(scaled_rows(2), kAllRows, 0, stage.written_k);
  } else {
    const int key_head = head / delta.ratio;
    load_rows(delta.k, chunk, key_head, stage.k);
    load_rows(delta.q, chunk, key_head, stage.q);
  }
  copy_chunk_rows<T, Stage::kSlice, typename Stage::ValueRows, kThreads>(
      delta.v, chunk, head, first_row, ptx::shared_address(stage.v), thread);
  const uint32_t matrices = ptx::shared_address(stage.matrices);
  constexpr unsigned kBytes = Stage::kPerChannel ? kDeltaRowsOffset<kDimK> : kDeltaSlotBytes;
#pragma unroll
  for (unsigned first = 0; first < kBytes; first += kThreads * 16)
    if (const unsigned i = first + thread * 16; i < kBytes) ptx::cp_async_16(matrices + i, from + i);
}

// Walks the chunks of request blockIdx.y, with the rows of a head of blockIdx.x. The first Scan::kWarps warps
// compute, and the others load. Scan::Warp has start(), step() and finish(). Scan::begin_loading() and
// begin_computing() start a role; Scan::loaded() follows the copies of a chunk.
template <class Scan>
__device__ inline void walk_delta_chunks(const DeltaChunkParams& params, typename Scan::Stage* stages) {
  using Stage = typename Scan::Stage;
  constexpr int kStages = Scan::kStages, kWarps = Scan::kWarps, kBarrier = 1;
  static_assert(offsetof(Stage, factors) == offsetof(Stage, matrices) + 2 * kDeltaMatrixBytes);
  const DeltaParams& delta = params.delta;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const int slices = delta.dim_v / Stage::kSlice, head = static_cast<int>(blockIdx.x) / slices;
  const int first_row = static_cast<int>(blockIdx.x) % slices * Stage::kSlice;
  const StepRequest request = step_request(delta.batch, static_cast<int>(blockIdx.y));
  const int num_chunks = num_delta_chunks(request);
  if (num_chunks == 0) return;
  if (warp >= kWarps) {
    Scan::begin_loading();
    const int slot = first_delta_slot(delta.batch, static_cast<int>(blockIdx.y));
    const auto load = [&](int c) {
      if (c < num_chunks)
        load_delta_chunk<typename Scan::Type, Scan::kDimK, Scan::kThreads - 32 * kWarps>(
            params, delta_chunk(request, c), head, first_row, slot + c, stages[c % kStages],
            static_cast<unsigned>(thread - 32 * kWarps));
      ptx::cp_async_commit_group();
    };
#pragma unroll
    for (int c = 0; c < kStages - 1; ++c) load(c);
    for (int c = 0; c < num_chunks; ++c) {
      ptx::cp_async_wait_group<kStages - 2>();
      Scan::loaded();
      ptx::bar_sync(kBarrier, Scan::kThreads);  // chunk c is loaded, and chunk c - 1 is no longer read
      load(c + kStages - 1);
    }
  } else {
    Scan::begin_computing();
    typename Scan::Warp scan(delta, head, first_row, warp, thread % 32);
    scan.start(request);
    for (int c = 0; c < num_chunks; ++c) {
      ptx::bar_sync(kBarrier, Scan::kThreads);
      scan.step(stages[c % kStages], delta_chunk(request, c));
    }
    scan.finish(request);
  }
}

}  // namespace attend::kernels::cuda
