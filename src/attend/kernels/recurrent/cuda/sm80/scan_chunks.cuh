// Selective scan of prompts in chunks of 64 tokens (arXiv 2405.21060, section 6), on mma.sync. With a =
// -e^a_log step, G = the running sum of a in the chunk, and E_ij = e^(G_i - G_j) for i >= j, otherwise 0:
//   out = ((c b^T) o E o step_j) x + e^G_i c h^T + d x;  h = e^G_63 h + (e^(G_63 - G_j) step_j x_j)^T b
//
//   tile        one request, one head, 64 or 32 rows of its state (kSlice), all chunks one after another
//   warps       4. Outputs: 16 tokens each. State: 16 rows each, if kSlice is 32 half of the columns
//   registers   state (kSlice x state_dim / 128 floats), 32 for c b^T, kSlice / 2 for outputs; at most 255
//   shared      2 stages of 64 tokens of x, b and c; a copy of the state; running sums:
//               97 KB at kSlice 64 and state_dim 128
//   bytes       x and out once; b and c once per head and slice, from L2
//   bound       reading shared memory for mma.sync; L2 for b and c
//
// Chunks are at multiples of 64 of a request's positions, and the state is f32 in registers from chunk to
// chunk, so that the division of a prompt at these positions does not change any bit. kSlice does not either:
// rows of the state are independent.
//
// The state is read and written once per step. The forms that compute all chunks at the same time store a
// state per chunk, in Nemotron 3 Nano 4 times the bytes of x and out together.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/recurrent/cuda/common/scan_step.cuh"
#include "attend/kernels/recurrent/cuda/common/step_request.cuh"
#include "attend/kernels/recurrent/cuda/sm80/scan_chunks_kernel.h"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kChunk = 64;
inline constexpr int kChunkWarps = 4, kChunkThreads = 32 * kChunkWarps;
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
  static constexpr int kCopyBytes = kSlice * kStateRowBytes;
  // Warps of the state: 16 rows and a part of the columns.
  static constexpr int kRowBlocks = kSlice / 16, kColumnParts = kChunkWarps / kRowBlocks;
  static constexpr int kWarpColumns = kStateDim / kColumnParts, kBlocks = kWarpColumns / 8;
  static_assert(kColumnParts * kRowBlocks == kChunkWarps && kBlocks % 2 == 0);
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
  char state[Tile::kCopyBytes];  // [kSlice, kStateDim] in 16 bits: operand of the next chunk's products
  ChunkSteps steps[2];
};

template <class T, class Tile>
class ScanChunksCta {
 public:
  __device__ ScanChunksCta(const ScanParams& params, const StepRequest& request, ScanShared<Tile>& shared)
      : params_(params), request_(request), shared_(shared) {
    const int slices = (params.head_dim + Tile::kSlice - 1) / Tile::kSlice;
    head_ = static_cast<int>(blockIdx.x) / slices;
    first_row_ = static_cast<int>(blockIdx.x) % slices * Tile::kSlice;
    log2_rate_ = -expf(params.a_log[head_]) * 1.44269504f;
  }

  __device__ void run() {
    const int start = request_.seqlen_kv - request_.seqlen_q();
    load_state();
    store_copy();
    // Token of row 0; rows outside the request are not read.
    int first_token = request_.begin - start % kChunk;
    load_tiles(first_token, 0);
    load_steps(first_token);
    for (int stage = 0; first_token < request_.end; first_token += kChunk, stage ^= 1) {
      if (warp_ == 0) sum_steps(shared_.steps[stage]);
      ptx::cp_async_wait_group<0>();
      // All copies of this chunk, its sums and the copy of the state are visible. No warp uses the other
      // stage.
      __syncthreads();
      if (first_token + kChunk < request_.end) {
        load_tiles(first_token + kChunk, stage ^ 1);
        load_steps(first_token + kChunk);
      }
      write_outputs(first_token, stage);
      if (shared_.steps[stage].any_saves != 0) save_states(stage);
      // No warp reads the copy of the state.
      __syncthreads();
      const float* const weights = shared_.steps[stage].weights;
      step_state(
          stage, kChunk - 1, [&](int token) { return weights[token]; },
          [&](int block, const float(&values)[4]) {
#pragma unroll
            for (int i = 0; i < 4; ++i) state_[block][i] = values[i];
          });
      store_copy();
    }
#pragma unroll
    for (int block = 0; block < Tile::kBlocks; ++block) store_block(request_.row, block, state_[block]);
  }

 private:
  static constexpr int kSliceBlocks = Tile::kSlice / 8;
  static constexpr int kTokenBlocks = kChunk / 8;

  __device__ bool has_token(int token) const { return token >= request_.begin && token < request_.end; }

  // Copies of x, b and c of a chunk.
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
    constexpr int kPieces = kRowBytes / kPieceBytes;
    static_assert(kChunkThreads % kPieces == 0);
    const int piece = thread_ % kPieces, element = first + piece * kPieceElements;
    const T* const from = static_cast<const T*>(rows.data) + index * rows.head_stride + element;
#pragma unroll
    for (int row = thread_ / kPieces; row < kChunk; row += kChunkThreads / kPieces) {
      const int token = first_token + row;
      const bool exists = has_token(token) && element < end;
      ptx::cp_async_16(to + piece_offset<kRowBytes>(row, piece),
                       exists ? from + token * rows.token_stride : params_.x.data, exists);
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
                   state_from = ptx::shared_address(shared_.state) + state_row;
    const uint32_t x_from = x_tile(stage) + piece_offset<Tile::kSliceRowBytes>(lane_ % 16, lane_ / 16);
    float scores[kTokenBlocks][4] = {}, outputs[kSliceBlocks][4] = {};
#pragma unroll 2
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
      for (int block = 0; block < kTokenBlocks; ++block)
        if (block <= 2 * warp_ + 1) multiply(scores[block], keys_from, block);
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
      if (k > warp_) break;
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

  // Writes the states after tokens with a second slot, each computed from the state before the chunk.
  __device__ void save_states(int stage) const {
    const ChunkSteps& steps = shared_.steps[stage];
    for (int last = 0; last < kChunk; ++last) {
      const int slot = steps.saves[last];
      if (slot == 0) continue;
      const auto weight = [&](int token) {
        const float decay = ptx::ex2_approx(fminf(steps.sums[last] - steps.sums[token], 0.0f));
        return token <= last ? steps.steps[token] * decay : 0.0f;
      };
      step_state(stage, last, weight,
                 [&](int block, const float(&values)[4]) { store_block(slot, block, values); });
    }
  }
  // Steps the state from the start of a chunk to its token `last`. weight(token): step of the token times the
  // decay after it. end(block, values) receives the new values of a block of the state.
  template <class Weight, class End>
  __device__ void step_state(int stage, int last, const Weight& weight, const End& end) const {
    const float decay = ptx::ex2_approx(shared_.steps[stage].sums[last]);
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
        const float weights[2] = {weight(column), weight(column + 1)};
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          uint32_t& pair = inputs[k][2 * half + row];
          const float2 values = unpack(pair, T());
          pair = pack(weights[0] * values.x, weights[1] * values.y, T());
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
      end(2 * pair, even);
      end(2 * pair + 1, odd);
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
  __device__ void store_block(int slot, int block, const float (&values)[4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (has_row(half))
        *reinterpret_cast<float2*>(block_state(slot, block, half)) =
            make_float2(values[2 * half], values[2 * half + 1]);
  }
  // Stores the 16-bit copy of the state.
  __device__ void store_copy() {
#pragma unroll
    for (int block = 0; block < Tile::kBlocks; ++block)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t offset =
            move_pieces<Tile::kStateRowBytes>(
                piece_offset<Tile::kStateRowBytes>(block_row(0), first_column_ / 8), block) +
            8 * half * Tile::kStateRowBytes;
        reinterpret_cast<uint32_t*>(shared_.state + offset)[lane_ % 4] =
            pack(state_[block][2 * half], state_[block][2 * half + 1], T());
      }
  }

  const ScanParams& params_;
  const StepRequest& request_;
  ScanShared<Tile>& shared_;
  const int thread_ = static_cast<int>(threadIdx.x), lane_ = thread_ % 32, warp_ = thread_ / 32;
  // Part of the state of this warp.
  const int row_block_ = warp_ % Tile::kRowBlocks,
            first_column_ = warp_ / Tile::kRowBlocks * Tile::kWarpColumns;
  int head_, first_row_;
  float log2_rate_;
  float state_[Tile::kBlocks][4];
  // Inputs of warp 0 for the next chunk's steps.
  static constexpr int kNoToken = -1;
  uint32_t dt_;   // a pair of T
  int saves_[2];  // kNoToken: not in the request
};

template <class T, class Tile>
__global__ void __launch_bounds__(kChunkThreads, 2)
    scan_chunks_kernel(const __grid_constant__ ScanParams params) {
  extern __shared__ char dynamic[];
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const StepRequest request = step_request(params.batch, static_cast<int>(blockIdx.y));
  if (request.row == 0 || request.seqlen_q() <= params.max_tokens) return;
  // Dynamic shared memory starts at a multiple of 16 bytes only.
  const uint32_t misaligned = ptx::shared_address(dynamic) % 128;
  auto& shared = *reinterpret_cast<ScanShared<Tile>*>(dynamic + (misaligned == 0 ? 0 : 128 - misaligned));
  ScanChunksCta<T, Tile>(params, request, shared).run();
}

template <class T, class Tile>
void launch_tile(const ScanParams& params, void* stream) {
  constexpr int kSharedBytes = static_cast<int>(sizeof(ScanShared<Tile>)) + 128;
  static_assert(kSharedBytes <= scan_chunks_max_shared_bytes(Tile::kStateDim));
  const int slices = (params.head_dim + Tile::kSlice - 1) / Tile::kSlice;
  allow_shared_memory<scan_chunks_kernel<T, Tile>>(kSharedBytes, "selective_scan");
  launch_dependent<ScanParams>(
      scan_chunks_kernel<T, Tile>,
      dim3(static_cast<unsigned>(params.num_heads * slices), static_cast<unsigned>(params.batch.num_reqs)),
      kChunkThreads, kSharedBytes, stream, params, "selective_scan");
}

template <class T>
void launch_scan_chunks(const ScanParams& params, void* stream) {
  // Wide slices read b and c half as often; narrow ones have twice the CTAs.
  const int wide_ctas = params.batch.num_reqs * params.num_heads * (params.head_dim / 64);
  const bool wide = params.head_dim % 64 == 0 && wide_ctas >= 2 * num_sms();
  if (params.state_dim == 256) return launch_tile<T, ScanTile<256, 32>>(params, stream);
  if (params.state_dim == 128)
    return wide ? launch_tile<T, ScanTile<128, 64>>(params, stream)
                : launch_tile<T, ScanTile<128, 32>>(params, stream);
  return wide ? launch_tile<T, ScanTile<64, 64>>(params, stream)
              : launch_tile<T, ScanTile<64, 32>>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
