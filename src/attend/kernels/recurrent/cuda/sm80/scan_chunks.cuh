// Selective scan of prompts in chunks of 64 tokens (arXiv 2405.21060, section 6), on mma.sync. With a =
// -e^a_log step, G = the running sum of a in the chunk, and E_ij = e^(G_i - G_j) for i >= j, otherwise 0:
//   out = ((c b^T) o E o step_j) x + e^G_i c h^T + d x;  h = e^G_63 h + (e^(G_63 - G_j) step_j x_j)^T b
//
//   tile        one request, one head, 64 or 32 rows of its state (kSlice), all chunks one after another
//   warps       8. Output warps multiply 16 tokens each. State warps have 16 rows of the state each, if
//   kSlice
//               is 32 half of their columns; they also copy x, b and c, and sum the steps of the next chunk
//   registers   at most 128 if kSlice is 32 and two CTAs fit an SM, otherwise 255. Output warps: 32 sums for
//               c b^T, kSlice / 2 for outputs. State warps: kSlice x state_dim / 128
//   shared      2 stages of 64 tokens of x, b and c; 2 copies of the state in 16 bits; steps: 90 KB at kSlice
//               32 and state_dim 128
//   bytes       x and out once; b and c once per head and slice, from L2
//   bound       output warps: mma.sync, and shared memory for its operands
//
// The state after a chunk does not depend on the chunk's outputs, so both are computed at the same time, with
// one barrier per chunk.
//
// Chunks are at multiples of 64 of a request's positions, and the state is f32 in registers from chunk to
// chunk, so that the division of a prompt at these positions does not change any bit. kSlice does not either:
// rows of the state are independent.
//
// The state is read and written once per step. The forms that compute all chunks at the same time store a
// state per chunk, in Nemotron 3 Nano as many bytes as x and out together, and read and write it again to
// pass states on.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/barrier.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/recurrent/cuda/common/scan_step.cuh"
#include "attend/kernels/recurrent/cuda/common/step_request.cuh"
#include "attend/kernels/recurrent/cuda/sm80/scan_chunks_kernel.h"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kChunk = 64;
inline constexpr int kRoleWarps = 4, kRoleThreads = 32 * kRoleWarps;  // of output warps, and of state warps
inline constexpr int kChunkThreads = 2 * kRoleThreads;
inline constexpr int kPieceBytes = 16, kPieceElements = 8;

// Offset of 16 bytes of a row of a tile. Eight rows at the same piece are in different banks.
template <int kRowBytes>
__device__ inline uint32_t piece_offset(int row, int piece) {
  static_assert(kRowBytes == 64 || kRowBytes % 128 == 0);
  const int swizzle = kRowBytes == 64 ? row / 2 % 4 : row % 8;
  return static_cast<uint32_t>(row * kRowBytes + (piece ^ swizzle) * kPieceBytes);
}

// Moves an offset by this number of pieces, whose bits are 0 in the piece of `offset`.
template <int kRowBytes>
__device__ inline uint32_t move_pieces(uint32_t offset, int pieces) {
  constexpr int kSwizzled = kRowBytes == 64 ? 4 : 8;
  return (offset ^ static_cast<uint32_t>(pieces % kSwizzled * kPieceBytes)) +
         static_cast<uint32_t>(pieces / kSwizzled * kSwizzled * kPieceBytes);
}

__device__ inline uint32_t pack(float low, float high, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline uint32_t pack(float low, float high, __half) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline float2 unpack(uint32_t bits, __nv_bfloat16) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&bits));
}
__device__ inline float2 unpack(uint32_t bits, __half) {
  return __half22float2(*reinterpret_cast<const __half2*>(&bits));
}

template <int kStateDim_, int kSlice_>
struct ScanTile {
  static constexpr int kStateDim = kStateDim_, kSlice = kSlice_;
  static constexpr int kStateRowBytes = 2 * kStateDim, kSliceRowBytes = 2 * kSlice;
  static constexpr int kXBytes = kChunk * kSliceRowBytes, kStateRowsBytes = kChunk * kStateRowBytes;
  static constexpr int kStageBytes = kXBytes + 2 * kStateRowsBytes;
  static constexpr int kStages = 2;
  static constexpr int kCtasPerSm = kSlice == 32 && kStateDim <= 128 ? 2 : 1;
  static constexpr int kCopyBytes = kSlice * kStateRowBytes;
  // State warps: 16 rows and a part of the columns.
  static constexpr int kRowBlocks = kSlice / 16, kColumnParts = kRoleWarps / kRowBlocks;
  static constexpr int kWarpColumns = kStateDim / kColumnParts, kBlocks = kWarpColumns / 8;
  static_assert(kColumnParts * kRowBlocks == kRoleWarps && kBlocks % 2 == 0);
};

// Steps of the tokens of a chunk. Tokens outside the request have step 0.
struct alignas(16) ChunkSteps {
  float sums[kChunk];  // G in units of ln 2
  float steps[kChunk];
  float weights[kChunk];  // steps times e^(G_63 - G)
  int saves[kChunk];      // slots that receive the state after the token; 0: none
  int any_saves;
};

template <class Tile>
struct ScanShared {
  alignas(128) char stages[Tile::kStages][Tile::kStageBytes];
  char states[2][Tile::kCopyBytes];  // [kSlice, kStateDim] in 16 bits: before this chunk and the next one
  ChunkSteps steps[2];
  // In shared memory, since all registers are in use during a scan.
  StepRequest request;
  int item;
};

template <class T, class Tile>
class ScanChunksCta {
 public:
  // `task`: slice of a head. The request is in shared memory.
  __device__ ScanChunksCta(const ScanParams& params, ScanShared<Tile>& shared, int task, int num_slices)
      : params_(params),
        request_(shared.request),
        shared_(shared),
        head_(task / num_slices),
        first_row_(task % num_slices * Tile::kSlice) {
    log2_rate_ = -expf(params.a_log[head_]) * 1.44269504f;
  }

  __device__ void run() {
    // Token of row 0 of the first chunk; rows outside the request are not read.
    const int first_token = request_.begin - (request_.seqlen_kv - request_.seqlen_q()) % kChunk;
    if (thread_ < kRoleThreads)
      run_outputs(first_token);
    else
      run_state(first_token);
  }

 private:
  static constexpr int kSliceBlocks = Tile::kSlice / 8;
  static constexpr int kTokenBlocks = kChunk / 8;

  // Copies, steps and the state before the chunk of a stage are visible to all warps, and no warp uses the
  // other stage.
  static __device__ void start_chunk() { ptx::bar_sync(1, kChunkThreads); }

  __device__ void run_outputs(int first_token) const {
    for (int stage = 0; first_token < request_.end; first_token += kChunk, stage ^= 1) {
      start_chunk();
      write_outputs(first_token, stage);
    }
  }

  __device__ void run_state(int first_token) {
    load_tiles(first_token, 0);
    load_steps(first_token);
    load_state();
    store_copy(0);
    for (int stage = 0; first_token < request_.end; first_token += kChunk, stage ^= 1) {
      if (warp_ == 0) sum_steps(shared_.steps[stage]);
      ptx::cp_async_wait_group<0>();
      start_chunk();
      if (first_token + kChunk < request_.end) {
        load_tiles(first_token + kChunk, stage ^ 1);
        load_steps(first_token + kChunk);
      }
      step_state(stage);
      store_copy(stage ^ 1);
    }
    store_state(request_.row);
  }

  __device__ bool has_token(int token) const { return token >= request_.begin && token < request_.end; }

  // Copies x, b and c of a chunk.
  __device__ void load_tiles(int first_token, int stage) const {
    const uint32_t x = x_tile(stage);
    load_rows<Tile::kSliceRowBytes>(params_.x, head_, first_row_, params_.head_dim, first_token, x);
    const int group = head_ / params_.heads_per_group;
    load_rows<Tile::kStateRowBytes>(params_.b, group, 0, Tile::kStateDim, first_token, b_tile(stage));
    load_rows<Tile::kStateRowBytes>(params_.c, group, 0, Tile::kStateDim, first_token, c_tile(stage));
    ptx::cp_async_commit_group();
  }
  template <int kRowBytes>
  __device__ void load_rows(const TokenRows& rows, int index, int first, int end, int first_token,
                            uint32_t to) const {
    constexpr int kPieces = kRowBytes / kPieceBytes, kPassRows = kRoleThreads / kPieces;
    static_assert(kRoleThreads % kPieces == 0 && kChunk % kPassRows == 0);
    const int thread = ptx::tid_x() % kRoleThreads, piece = thread % kPieces, first_row = thread / kPieces;
    const int element = first + piece * kPieceElements;
    const T* from = static_cast<const T*>(rows.data) + index * rows.head_stride + element +
                    (first_token + first_row) * rows.token_stride;
    // Rows of the request: [0, num_rows) after `skipped`.
    const unsigned skipped = static_cast<unsigned>(request_.begin - first_token);
    const unsigned num_rows = element < end ? static_cast<unsigned>(request_.seqlen_q()) : 0;
#pragma unroll
    for (int pass = 0; pass < kChunk / kPassRows; ++pass) {
      const int row = first_row + pass * kPassRows;
      ptx::cp_async_16(to + piece_offset<kRowBytes>(row, piece), from, row - skipped < num_rows);
      from += kPassRows * rows.token_stride;
    }
  }
  __device__ uint32_t x_tile(int stage) const { return ptx::shared_address(shared_.stages[stage]); }
  __device__ uint32_t b_tile(int stage) const { return x_tile(stage) + Tile::kXBytes; }
  __device__ uint32_t c_tile(int stage) const { return b_tile(stage) + Tile::kStateRowsBytes; }

  // Warp 0 loads steps and slots of tokens 2 lane and 2 lane + 1 of a chunk.
  __device__ void load_steps(int first_token) {
    if (warp_ != 0) return;
    float dt[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = first_token + 2 * lane_ + i;
      const bool exists = has_token(token);
      dt[i] = exists ? load_dt<T>(params_, token, head_) : 0.0f;
      saves_[i] = !exists                               ? kNoToken
                  : params_.batch.save_slots == nullptr ? 0
                                                        : params_.batch.save_slots[token];
    }
    dt_ = pack(dt[0], dt[1], T());
  }
  __device__ void sum_steps(ChunkSteps& to) const {
    const float2 dt = unpack(dt_, T());
    const float first = saves_[0] == kNoToken ? 0.0f : scan_step(params_, dt.x, head_);
    const float second = saves_[1] == kNoToken ? 0.0f : scan_step(params_, dt.y, head_);
    const float first_log = log2_rate_ * first, both = fmaf(log2_rate_, second, first_log);
    float sum = both;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const float other = __shfl_up_sync(0xffffffffu, sum, distance);
      if (lane_ >= distance) sum += other;
    }
    const float lower = __shfl_up_sync(0xffffffffu, sum, 1), before = lane_ == 0 ? 0.0f : lower;
    const int i = 2 * lane_;
    const float first_sum = before + first_log, total = __shfl_sync(0xffffffffu, sum, 31);
    to.sums[i] = first_sum;
    to.sums[i + 1] = sum;
    to.weights[i] = first * ptx::ex2_approx(fminf(total - first_sum, 0.0f));
    to.weights[i + 1] = second * ptx::ex2_approx(fminf(total - sum, 0.0f));
    to.steps[i] = first;
    to.steps[i + 1] = second;
    to.saves[i] = max(saves_[0], 0);
    to.saves[i + 1] = max(saves_[1], 0);
    const bool any = __any_sync(0xffffffffu, max(saves_[0], saves_[1]) > 0);
    if (lane_ == 0) to.any_saves = any ? 1 : 0;
  }

  // Outputs of tokens 16 warp to 16 warp + 15.
  __device__ void write_outputs(int first_token, int stage) const {
    const ChunkSteps& steps = shared_.steps[stage];
    // Addresses of this lane's rows for ldmatrix.
    const uint32_t queries_from =
        c_tile(stage) + piece_offset<Tile::kStateRowBytes>(16 * warp_ + lane_ % 16, lane_ / 16);
    const uint32_t state_row = piece_offset<Tile::kStateRowBytes>(lane_ % 8, lane_ / 8);
    const uint32_t keys_from = b_tile(stage) + state_row,
                   state_from = ptx::shared_address(shared_.states[stage]) + state_row;
    const uint32_t x_from = x_tile(stage) + piece_offset<Tile::kSliceRowBytes>(lane_ % 16, lane_ / 16);
    // The first two warps' tokens do not read the second half of the chunk. One branch for four blocks leaves
    // their products independent.
    const bool upper = ptx::warp_uniform(warp_) >= kRoleWarps / 2;
    float scores[kTokenBlocks][4] = {}, outputs[kSliceBlocks][4] = {};
#pragma unroll 1  // two CTAs per SM leave no registers for more
    for (int k = 0; k < Tile::kStateDim / 16; k += 2) {
      uint32_t queries[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        ptx::ldmatrix_x4(queries[i], move_pieces<Tile::kStateRowBytes>(queries_from, 2 * (k + i)));
      const auto multiply = [&](float(&sums)[4], uint32_t from, int block) {
        uint32_t matrices[4];
        ptx::ldmatrix_x4(matrices,
                         move_pieces<Tile::kStateRowBytes>(from, 2 * k) + 8 * block * Tile::kStateRowBytes);
        ptx::mma_m16n8k16(sums, queries[0], matrices[0], matrices[1], T());
        ptx::mma_m16n8k16(sums, queries[1], matrices[2], matrices[3], T());
      };
#pragma unroll
      for (int block = 0; block < kTokenBlocks / 2; ++block) multiply(scores[block], keys_from, block);
      if (upper) {
#pragma unroll
        for (int block = kTokenBlocks / 2; block < kTokenBlocks; ++block)
          multiply(scores[block], keys_from, block);
      }
#pragma unroll
      for (int block = 0; block < kSliceBlocks; ++block) multiply(outputs[block], state_from, block);
    }
    const int rows[2] = {16 * warp_ + lane_ / 4, 16 * warp_ + lane_ / 4 + 8};
    const float sums[2] = {steps.sums[rows[0]], steps.sums[rows[1]]};
#pragma unroll
    for (int block = 0; block < kSliceBlocks; ++block)
#pragma unroll
      for (int i = 0; i < 4; ++i) outputs[block][i] *= ptx::ex2_approx(sums[i / 2]);
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) {
      if (k >= kChunk / 32 && !upper) break;
      uint32_t weights[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int block = 2 * k + half, column = 8 * block + 2 * (lane_ % 4);
        const float2 column_sums = *reinterpret_cast<const float2*>(&steps.sums[column]);
        const float2 column_steps = *reinterpret_cast<const float2*>(&steps.steps[column]);
        const auto weight = [&](int i) {
          const float sum = i % 2 == 0 ? column_sums.x : column_sums.y;
          const float step = i % 2 == 0 ? column_steps.x : column_steps.y;
          const float decay = ptx::ex2_approx(fminf(sums[i / 2] - sum, 0.0f));
          return column + i % 2 <= rows[i / 2] ? scores[block][i] * decay * step : 0.0f;
        };
        weights[2 * half] = pack(weight(0), weight(1), T());
        weights[2 * half + 1] = pack(weight(2), weight(3), T());
      }
#pragma unroll
      for (int pair = 0; pair < kSliceBlocks / 2; ++pair) {
        uint32_t values[4];
        ptx::ldmatrix_x4_trans(
            values, move_pieces<Tile::kSliceRowBytes>(x_from, 2 * pair) + 16 * k * Tile::kSliceRowBytes);
        ptx::mma_m16n8k16(outputs[2 * pair], weights, values[0], values[1], T());
        ptx::mma_m16n8k16(outputs[2 * pair + 1], weights, values[2], values[3], T());
      }
    }
    const float d = params_.d[head_];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = first_token + rows[i];
      if (!has_token(token)) continue;
      T* const out = static_cast<T*>(params_.out.data) + token * params_.out.token_stride +
                     head_ * params_.out.head_stride + first_row_ + 2 * (lane_ % 4);
#pragma unroll
      for (int block = 0; block < kSliceBlocks; ++block) {
        if (first_row_ + 8 * block >= params_.head_dim) break;
        const uint32_t offset =
            move_pieces<Tile::kSliceRowBytes>(piece_offset<Tile::kSliceRowBytes>(rows[0], 0), block) +
            8 * i * Tile::kSliceRowBytes;
        const float2 inputs =
            unpack(reinterpret_cast<const uint32_t*>(shared_.stages[stage] + offset)[lane_ % 4], T());
        *reinterpret_cast<uint32_t*>(out + 8 * block) =
            pack(fmaf(d, inputs.x, outputs[block][2 * i]), fmaf(d, inputs.y, outputs[block][2 * i + 1]), T());
      }
    }
  }

  // Steps the state through a chunk. A token before the end whose state has a second slot divides the chunk.
  __device__ void step_state(int stage) {
    ChunkSteps& steps = shared_.steps[stage];
    int first = 0;
    do {
      int last = kChunk - 1;
      if (steps.any_saves != 0) {
        last = first;
        while (last < kChunk - 1 && steps.saves[last] == 0) ++last;
        if (last - first < kChunk - 1) weigh(steps, first, last);
      }
      const float before = first == 0 ? 0.0f : steps.sums[first - 1];
      add_inputs(stage, ptx::ex2_approx(fminf(steps.sums[last] - before, 0.0f)));
      if (const int slot = steps.saves[last]; slot != 0) store_state(slot);
      first = last + 1;
    } while (first < kChunk);
  }
  // Changes the weights to those of tokens [first, last].
  __device__ void weigh(ChunkSteps& steps, int first, int last) const {
    ptx::bar_sync(2, kRoleThreads);  // all state warps have read the weights
    if (const int token = thread_ % kRoleThreads; token < kChunk) {
      const float decay = ptx::ex2_approx(fminf(steps.sums[last] - steps.sums[token], 0.0f));
      steps.weights[token] = token >= first && token <= last ? steps.steps[token] * decay : 0.0f;
    }
    ptx::bar_sync(2, kRoleThreads);
  }
  // h = decay h + (weights x)^T b.
  __device__ void add_inputs(int stage, float decay) {
    const ChunkSteps& steps = shared_.steps[stage];
    const uint32_t x_from = x_tile(stage) + piece_offset<Tile::kSliceRowBytes>(
                                                lane_ % 8 + lane_ / 16 * 8, 2 * row_block_ + lane_ / 8 % 2);
    const uint32_t keys_from =
        b_tile(stage) + piece_offset<Tile::kStateRowBytes>(lane_ % 16, first_column_ / 8 + lane_ / 16);
    uint32_t inputs[kChunk / 16][4];
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) {
      ptx::ldmatrix_x4_trans(inputs[k], x_from + 16 * k * Tile::kSliceRowBytes);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = 16 * k + 8 * half + 2 * (lane_ % 4);
        const float2 weights = *reinterpret_cast<const float2*>(&steps.weights[column]);
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          uint32_t& pair = inputs[k][2 * half + row];
          const float2 values = unpack(pair, T());
          pair = pack(weights.x * values.x, weights.y * values.y, T());
        }
      }
    }
#pragma unroll
    for (int pair = 0; pair < Tile::kBlocks / 2; ++pair) {
      float even[4], odd[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        even[i] = decay * state_[2 * pair][i];
        odd[i] = decay * state_[2 * pair + 1][i];
      }
#pragma unroll
      for (int k = 0; k < kChunk / 16; ++k) {
        uint32_t values[4];
        ptx::ldmatrix_x4_trans(
            values, move_pieces<Tile::kStateRowBytes>(keys_from, 2 * pair) + 16 * k * Tile::kStateRowBytes);
        ptx::mma_m16n8k16(even, inputs[k], values[0], values[1], T());
        ptx::mma_m16n8k16(odd, inputs[k], values[2], values[3], T());
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        state_[2 * pair][i] = even[i];
        state_[2 * pair + 1][i] = odd[i];
      }
    }
  }

  // Rows lane / 4 and lane / 4 + 8 of this warp's 16, columns 2 (lane % 4) and 2 (lane % 4) + 1 of a block.
  __device__ int block_row(int half) const { return 16 * row_block_ + lane_ / 4 + 8 * half; }
  __device__ float* block_state(int slot, int block, int half) const {
    return head_state(params_, slot, head_) +
           static_cast<int64_t>(first_row_ + block_row(half)) * Tile::kStateDim + first_column_ + 8 * block +
           2 * (lane_ % 4);
  }
  __device__ bool has_row(int half) const { return first_row_ + block_row(half) < params_.head_dim; }
  __device__ void load_state() {
#pragma unroll
    for (int block = 0; block < Tile::kBlocks; ++block)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float2 pair{};
        if (request_.load != 0 && has_row(half))
          pair = *reinterpret_cast<const float2*>(block_state(request_.load, block, half));
        state_[block][2 * half] = pair.x;
        state_[block][2 * half + 1] = pair.y;
      }
  }
  __device__ void store_state(int slot) const {
#pragma unroll
    for (int block = 0; block < Tile::kBlocks; ++block)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (has_row(half))
          *reinterpret_cast<float2*>(block_state(slot, block, half)) =
              make_float2(state_[block][2 * half], state_[block][2 * half + 1]);
  }
  // Stores the state in 16 bits, for the outputs of a chunk.
  __device__ void store_copy(int stage) {
#pragma unroll
    for (int block = 0; block < Tile::kBlocks; ++block)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t offset =
            move_pieces<Tile::kStateRowBytes>(
                piece_offset<Tile::kStateRowBytes>(block_row(0), first_column_ / 8), block) +
            8 * half * Tile::kStateRowBytes;
        reinterpret_cast<uint32_t*>(shared_.states[stage] + offset)[lane_ % 4] =
            pack(state_[block][2 * half], state_[block][2 * half + 1], T());
      }
  }

  const ScanParams& params_;
  const StepRequest& request_;
  ScanShared<Tile>& shared_;
  const int thread_ = static_cast<int>(threadIdx.x), lane_ = thread_ % 32;
  const int warp_ = thread_ / 32 % kRoleWarps;  // of the role
  // Part of the state of this warp.
  const int row_block_ = warp_ % Tile::kRowBlocks,
            first_column_ = warp_ / Tile::kRowBlocks * Tile::kWarpColumns;
  const int head_, first_row_;
  float log2_rate_;
  float state_[Tile::kBlocks][4];
  // Inputs of warp 0 for the next chunk's steps.
  static constexpr int kNoToken = -1;
  uint32_t dt_;   // a pair of T
  int saves_[2];  // kNoToken: not in the request
};

// Returns the request with this rank among those that are scanned in chunks, or -1. Called by all lanes.
__device__ inline int find_long_request(const ScanParams& params, int rank) {
  const StepBatch& batch = params.batch;
  for (int first = 0; first < batch.num_reqs; first += 32) {
    const int i = first + static_cast<int>(threadIdx.x) % 32;
    const bool is_long = i < batch.num_reqs && batch.rows[i] != 0 &&
                         batch.cu_seqlen_q[i + 1] - batch.cu_seqlen_q[i] > params.max_tokens;
    const unsigned mask = __ballot_sync(0xffffffffu, is_long);
    if (rank < __popc(mask)) return first + static_cast<int>(__fns(mask, 0, rank + 1));
    rank -= __popc(mask);
  }
  return -1;
}

struct ScanChunksLaunch {
  ScanParams params;
  int32_t num_slices, num_tasks;  // slices of a head, and of all heads
};

// CTAs scan one slice of a head of a request after another, so that requests with few tokens need no CTAs.
template <class T, class Tile>
__global__ void __launch_bounds__(kChunkThreads, Tile::kCtasPerSm)
    scan_chunks_kernel(const __grid_constant__ ScanChunksLaunch launch) {
  extern __shared__ __align__(128) char dynamic[];
  ptx::launch_dependents();
  const ScanParams& params = launch.params;
  auto& shared = *reinterpret_cast<ScanShared<Tile>*>(dynamic);
  ptx::griddepcontrol_wait();
  for (int item = static_cast<int>(blockIdx.x);; item += static_cast<int>(gridDim.x)) {
    const int request_idx = find_long_request(params, item / launch.num_tasks);
    if (request_idx < 0) return;
    if (threadIdx.x == 0) {
      shared.request = step_request(params.batch, request_idx);
      shared.item = item;
    }
    ptx::bar_sync(1, kChunkThreads);
    ScanChunksCta<T, Tile>(params, shared, item % launch.num_tasks, launch.num_slices).run();
    item = shared.item;
    ptx::bar_sync(1, kChunkThreads);  // no warp uses the shared memory of this item
  }
}

template <class T, class Tile>
void launch_tile(const ScanParams& params, void* stream) {
  constexpr int kSharedBytes = scan_chunks_shared_bytes(Tile::kStateDim, Tile::kSlice);
  static_assert(sizeof(ScanShared<Tile>) <= kSharedBytes);
  const int num_slices = (params.head_dim + Tile::kSlice - 1) / Tile::kSlice;
  const int max_requests = std::min(params.batch.num_reqs, params.batch.num_tokens / (params.max_tokens + 1));
  const int num_ctas = std::min(max_requests * params.num_heads * num_slices, Tile::kCtasPerSm * num_sms());
  if (num_ctas == 0) return;
  allow_shared_memory<scan_chunks_kernel<T, Tile>>(kSharedBytes, "selective_scan");
  launch_dependent<ScanChunksLaunch>(scan_chunks_kernel<T, Tile>, static_cast<unsigned>(num_ctas),
                                     kChunkThreads, kSharedBytes, stream,
                                     {params, num_slices, params.num_heads * num_slices}, "selective_scan");
}

template <class T>
void launch_scan_chunks(const ScanParams& params, void* stream) {
  // Wide slices read b and c half as often; narrow ones have twice the CTAs.
  const int wide_ctas = params.batch.num_reqs * params.num_heads * (params.head_dim / kWideSlice);
  const bool wide = params.head_dim % kWideSlice == 0 && wide_ctas >= 2 * num_sms() &&
                    scan_chunks_shared_bytes(params.state_dim, kWideSlice) <=
                        current_device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  if (params.state_dim == 256) return launch_tile<T, ScanTile<256, kNarrowSlice>>(params, stream);
  if (params.state_dim == 128)
    return wide ? launch_tile<T, ScanTile<128, kWideSlice>>(params, stream)
                : launch_tile<T, ScanTile<128, kNarrowSlice>>(params, stream);
  return wide ? launch_tile<T, ScanTile<64, kWideSlice>>(params, stream)
              : launch_tile<T, ScanTile<64, kNarrowSlice>>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
