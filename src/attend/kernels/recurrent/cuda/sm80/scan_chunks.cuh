// Selective scan of prompts in chunks of 64 tokens (arXiv 2405.21060, section 6), on mma.sync. With a =
// -e^a_log step, G = the running sum of a in the chunk, and E_ij = e^(G_i - G_j) for i >= j, otherwise 0:
//   out = ((c b^T) o E o step_j) x + e^G_i c h^T + d x;  h = e^G_63 h + (e^(G_63 - G_j) step_j x_j)^T b
//
//   tile        one request, one head, 64 or 32 rows of its state (kSlice), all chunks one after another
//   warps       12. Two groups of four output warps compute every second chunk, 16 tokens per warp. Four
//               state warps step the state, 16 rows each (and half of the columns if kSlice is 32); they also
//               copy x, b and c, and sum the steps of the next chunk
//   registers   at most 168. Output warps: 32 sums for c b^T, kSlice / 2 for outputs. State warps: kSlice x
//               state_dim / 128
//   shared      3 stages (2 if they do not fit) of 64 tokens of x, b and c, a copy of the state before the
//               chunk in 16 bits, and steps: 137 KB at kSlice 32 and state_dim 128
//   bytes       x and out once; b and c once per head and slice, from L2
//   bound       latency of a chunk in a group; shared memory for mma.sync
//
// The state after a chunk does not depend on the chunk's outputs. State warps are therefore up to two chunks
// ahead of the groups. They fill a stage, arrive at the barrier on which its group waits, and wait for the
// group before they fill it again.
//
// Chunks are at multiples of 64 of a request's positions, and the state is f32 in registers from chunk to
// chunk, so that the division of a prompt at these positions does not change any bit, unless a token between
// them has a save slot. kSlice does not change bits: rows of the state are independent.
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
#include "attend/kernels/recurrent/cuda/common/delta_tiles.cuh"
#include "attend/kernels/recurrent/cuda/common/scan_step.cuh"
#include "attend/kernels/recurrent/cuda/sm80/scan_chunks_kernel.h"
#include "attend/kernels/recurrent/cuda/sm80/scan_tile.cuh"

namespace attend::kernels::cuda::sm80 {

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
    const int group = ptx::warp_uniform(thread_ / kRoleThreads);
    if (group < kOutputGroups)
      run_outputs(first_token, group);
    else
      run_state(first_token);
  }

 private:
  static constexpr int kSliceBlocks = Tile::kSlice / 8;
  static constexpr int kTokenBlocks = kChunk / 8;

  // Barriers. Chunks of a group fill and empty a stage in turn, so each group has its own.
  static constexpr int kStateBarrier = 1 + 2 * Tile::kStages * kOutputGroups, kPairThreads = 2 * kRoleThreads;
  static __device__ int full(int stage, int group) { return 1 + stage * kOutputGroups + group; }
  static __device__ int empty(int stage, int group) {
    return 1 + (Tile::kStages + stage) * kOutputGroups + group;
  }
  static __device__ int next_stage(int stage) { return stage + 1 == Tile::kStages ? 0 : stage + 1; }

  __device__ void run_outputs(int first_token, int group) const {
    int stage = group;
    for (first_token += group * kChunk; first_token < request_.end; first_token += kOutputGroups * kChunk) {
      ptx::bar_sync(full(stage, group), kPairThreads);
      write_outputs(first_token, stage);
      if (first_token + Tile::kStages * kChunk < request_.end)
        ptx::bar_arrive(empty(stage, group), kPairThreads);
      for (int i = 0; i < kOutputGroups; ++i) stage = next_stage(stage);
    }
  }

  __device__ void run_state(int first_token) {
    load_tiles(first_token, 0);
    load_steps(first_token);
    load_state();
    store_copy(0);
    int stage = 0, group = 0;
    for (int chunk = 0; first_token < request_.end; ++chunk, first_token += kChunk, group ^= 1) {
      if (warp_ == 0) sum_steps(shared_.steps[stage]);
      ptx::cp_async_wait_group<0>();
      // Copies and steps are visible to all state warps.
      ptx::bar_sync(kStateBarrier, kRoleThreads);
      ptx::bar_arrive(full(stage, group), kPairThreads);
      const int next = next_stage(stage);
      const bool has_next = first_token + kChunk < request_.end;
      if (has_next) {
        // Group of chunk `chunk` + 1 - kStages.
        if (chunk + 1 >= Tile::kStages)
          ptx::bar_sync(empty(next, group ^ ((Tile::kStages + 1) % 2)), kPairThreads);
        load_tiles(first_token + kChunk, next);
        load_steps(first_token + kChunk);
      }
      step_state(stage);
      if (has_next) store_copy(next);
      stage = next;
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
    dt_ = pack_pair(dt[0], dt[1], T());
  }
  __device__ void sum_steps(ChunkSteps& to) const {
    const float2 dt = unpack_pair<T>(dt_);
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
#pragma unroll Tile::kUnroll
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
        weights[2 * half] = pack_pair(weight(0), weight(1), T());
        weights[2 * half + 1] = pack_pair(weight(2), weight(3), T());
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
            unpack_pair<T>(reinterpret_cast<const uint32_t*>(shared_.stages[stage] + offset)[lane_ % 4]);
        *reinterpret_cast<uint32_t*>(out + 8 * block) = pack_pair(
            fmaf(d, inputs.x, outputs[block][2 * i]), fmaf(d, inputs.y, outputs[block][2 * i + 1]), T());
      }
    }
  }

  // Steps the state through a chunk. A token before the end whose state has a second slot divides the chunk.
  __device__ void step_state(int stage) {
    const ChunkSteps& steps = shared_.steps[stage];
    int first = 0;
    do {
      int last = kChunk - 1;
      const float* weights = steps.weights;
      if (steps.any_saves != 0) {
        last = first;
        while (last < kChunk - 1 && steps.saves[last] == 0) ++last;
        if (last - first < kChunk - 1) weights = weigh(steps, first, last);
      }
      const float before = first == 0 ? 0.0f : steps.sums[first - 1];
      add_inputs(stage, ptx::ex2_approx(fminf(steps.sums[last] - before, 0.0f)), weights);
      if (const int slot = steps.saves[last]; slot != 0) store_state(slot);
      first = last + 1;
    } while (first < kChunk);
  }
  // Returns the weights of tokens [first, last] of a chunk.
  __device__ const float* weigh(const ChunkSteps& steps, int first, int last) const {
    float* const weights = shared_.divided_weights[warp_];
    __syncwarp();  // all lanes have read the weights before
    for (int token = lane_; token < kChunk; token += 32) {
      const float decay = ptx::ex2_approx(fminf(steps.sums[last] - steps.sums[token], 0.0f));
      weights[token] = token >= first && token <= last ? steps.steps[token] * decay : 0.0f;
    }
    __syncwarp();
    return weights;
  }
  // h = decay h + (weights x)^T b.
  __device__ void add_inputs(int stage, float decay, const float* weights) {
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
        const float2 pair_weights = *reinterpret_cast<const float2*>(&weights[column]);
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          uint32_t& pair = inputs[k][2 * half + row];
          const float2 values = unpack_pair<T>(pair);
          pair = pack_pair(pair_weights.x * values.x, pair_weights.y * values.y, T());
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
            pack_pair(state_[block][2 * half], state_[block][2 * half + 1], T());
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
__global__ void __launch_bounds__(kChunkThreads, 1)
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
    ptx::bar_sync(kItemBarrier, kChunkThreads);
    ScanChunksCta<T, Tile>(params, shared, item % launch.num_tasks, launch.num_slices).run();
    item = shared.item;
    ptx::bar_sync(kItemBarrier, kChunkThreads);  // no warp uses the shared memory of this item
  }
}

inline int num_slices(const ScanParams& params, int slice) { return (params.head_dim + slice - 1) / slice; }
inline int max_long_requests(const ScanParams& params) {
  return std::min(params.batch.num_reqs, params.batch.num_tokens / (params.max_tokens + 1));
}

template <class T, class Tile>
void launch_tile(const ScanParams& params, void* stream) {
  constexpr int kSharedBytes = scan_chunks_shared_bytes(Tile::kStateDim, Tile::kSlice, Tile::kStages);
  static_assert(sizeof(ScanShared<Tile>) <= kSharedBytes);
  const int head_slices = num_slices(params, Tile::kSlice), num_tasks = params.num_heads * head_slices;
  const int num_ctas = std::min(max_long_requests(params) * num_tasks, num_sms());
  if (num_ctas == 0) return;
  allow_shared_memory<scan_chunks_kernel<T, Tile>>(kSharedBytes, "selective_scan");
  launch_dependent<ScanChunksLaunch>(scan_chunks_kernel<T, Tile>, static_cast<unsigned>(num_ctas),
                                     kChunkThreads, kSharedBytes, stream, {params, head_slices, num_tasks},
                                     "selective_scan");
}

template <class T, int kStateDim>
void launch_state_dim(const ScanParams& params, void* stream) {
  const int max_shared = current_device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const auto fits = [&](int slice, int stages) {
    return scan_chunks_shared_bytes(kStateDim, slice, stages) <= max_shared;
  };
  // Wide slices read b and c half as often, and take 1.13 times as long on an H200.
  const auto rounds = [&](int slice) {
    const int num_items = max_long_requests(params) * params.num_heads * num_slices(params, slice);
    return (num_items + num_sms() - 1) / num_sms();
  };
  if constexpr (kStateDim <= 128)
    if (fits(kWideSlice, 3) && 8 * rounds(kWideSlice) < 7 * rounds(kNarrowSlice))
      return launch_tile<T, ScanTile<kStateDim, kWideSlice, 3>>(params, stream);
  if constexpr (kStateDim <= 128)
    if (fits(kNarrowSlice, 3)) return launch_tile<T, ScanTile<kStateDim, kNarrowSlice, 3>>(params, stream);
  launch_tile<T, ScanTile<kStateDim, kNarrowSlice, 2>>(params, stream);
}

template <class T>
void launch_scan_chunks(const ScanParams& params, void* stream) {
  if (params.state_dim == 64) return launch_state_dim<T, 64>(params, stream);
  if (params.state_dim == 128) return launch_state_dim<T, 128>(params, stream);
  launch_state_dim<T, 256>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
