// A warp's share of the weights and of x on their way through shared memory.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/gemm/cuda/common/chunk_order.cuh"
#include "attend/kernels/gemm/cuda/sm80/few_rows_kernel.h"

namespace attend::kernels::cuda {

inline constexpr int kFewRowsWarps = kParts;
inline constexpr int kPieces = 8;      // of 16 bytes, of a row: a warp takes whole lines of memory
inline constexpr int kRowBytes = 128;  // of a chunk
inline constexpr int kChunkElements = 64;

// Groups that a CTA takes together.
__host__ __device__ inline int groups_of_unit(const FewRowsParams& params) {
  return params.gated || params.head_half > 0 ? 2 : 1;
}
__host__ __device__ inline int num_units(const FewRowsParams& params) {
  return params.out_features / (params.head_half > 0 ? 2 * kFeatures : kFeatures);
}
// Of the unit's first group.
__device__ inline int first_feature(const FewRowsParams& params, int unit) {
  const int heads_before = params.head_half > 0 ? unit / (params.head_half / kFeatures) : 0;
  return unit * kFeatures + heads_before * params.head_half;
}

// The output features of a CTA, which it goes through a few at a time. A unit is eight of them: one group of
// weight rows, or two (gate and up, or what turns with them).
struct FeatureShare {
  int begin, end, at_once;  // in units
  int num_chunks;           // of the inputs, which the warps take in turn

  __device__ FeatureShare(const FewRowsParams& params, int num_groups)
      : at_once(num_groups / groups_of_unit(params)),
        num_chunks((params.in_features + kChunkElements - 1) / kChunkElements) {
    begin = static_cast<int>(int64_t{num_units(params)} * blockIdx.x / gridDim.x);
    end = static_cast<int>(int64_t{num_units(params)} * (blockIdx.x + 1) / gridDim.x);
  }
};

// Slots of one chunk of the inputs: kGroups groups of weight rows, kTokens rows of x and one of the norm's
// weights. Chunks come in the order in which the warp takes them: for some units all of its inputs, then for
// the next units. `kHeads`: the product's head_half is not 0.
template <int kGroups, int kTokens, int kRingBytes, bool kHeads>
class FewRowsRing {
  static constexpr int kWeightBytes = kGroups * kFeatures * kRowBytes;
  static constexpr int kSlotBytes = kWeightBytes + (kTokens + 1) * kRowBytes;
  static constexpr int kRowsAtOnce = 32 / kPieces;

 public:
  static constexpr int kTiles = (kTokens + kFeatures - 1) / kFeatures;  // of eight tokens
  static constexpr int kStepBytes = kFewRowsWarps * kSlotBytes;         // from a warp's slot to its next
  // More than twelve would be more than it takes to keep memory busy, and each is a step before the first
  // product.
  static constexpr int kSlots = kRingBytes / kStepBytes < 12 ? kRingBytes / kStepBytes : 12;
  // A CTA that needs fewer slots leaves the rest of the SM to the next kernel's.
  static constexpr __host__ __device__ int shared_bytes(int chunks_of_warp) {
    return kStepBytes * (chunks_of_warp < kSlots ? chunks_of_warp : kSlots);
  }
  static_assert(kSlots >= 2);

  // What a lane multiplies of one chunk, as the tensor cores want it: elements 2 (l % 4) and the next of
  // pieces 0 to 3 (first half) and 4 to 7 of row l / 4 of each group, and of rows l / 4, l / 4 + 8, ... of x.
  struct Chunk {
    uint4 weights[2][kGroups];
    uint4 x[2][kTiles];
    uint4 norm[2];
  };

  __device__ FewRowsRing(const FewRowsParams& params, const FeatureShare& share, char* shared)
      : params_(params), share_(share) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    row_ = lane / kPieces;
    input_ = warp * kChunkElements + lane % kPieces * 8;
    const uint32_t slots = ptx::shared_address(shared) + static_cast<uint32_t>(warp * kSlotBytes);
    to_ = slots + swizzled(row_, lane % kPieces);
    from_ = slots + swizzled(lane % 8, lane / 8);
    norm_from_ = slots + swizzled(0, lane / 8);
    x_from_ = kTokens == 1 ? norm_from_ : from_;
    chunks_of_pass_ = (share.num_chunks - warp + kFewRowsWarps - 1) / kFewRowsWarps;
    const int64_t row_bytes = 2 * int64_t{params.in_features};
    group_pair_bytes_ = 2 / groups_of_unit(params) * kFeatures * row_bytes;
    odd_group_bytes_ = (kHeads         ? params.head_half
                        : params.gated ? params.out_features
                                       : kFeatures) *
                       row_bytes;
  }

  // Fills every slot: with weights, then, once the kernel before has ended, with x. What is asked for later
  // comes later, so x does not go behind more than half of all weights.
  __device__ __forceinline__ void start() {
    begin(weights_cursor_);
    const int num_early = min(kSlots, (weights_cursor_.left + 1) / 2);
#pragma unroll 1
    for (int slot = 0; slot < num_early; ++slot) {
      copy_weights(weights_cursor_, slot * kStepBytes);
      advance(weights_cursor_);
    }
    ptx::wait_for_previous_kernel();
    Cursor cursor;
    begin(cursor);
#pragma unroll 1
    for (int slot = 0; slot < kSlots; ++slot) {
      if (cursor.left > 0) {
        copy_x(cursor, slot * kStepBytes);
        if (slot >= num_early) copy_weights(cursor, slot * kStepBytes);
        advance(cursor);
      }
      ptx::commit_copies();
    }
    weights_cursor_ = cursor;
    ptx::allow_next_kernel();
  }

  // Takes the oldest chunk, and lets another one follow.
  __device__ __forceinline__ void take(Chunk& chunk) {
    ptx::wait_copies<kSlots - 1>();
    __syncwarp();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
        chunk.x[half][tile] =
            load((x_from_ ^ (half * 64)) + slot_ + kWeightBytes + tile * kFeatures * kRowBytes);
      if (params_.norm != nullptr)
        chunk.norm[half] = load((norm_from_ ^ (half * 64)) + slot_ + kWeightBytes + kTokens * kRowBytes);
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
        chunk.weights[half][group] = load((from_ ^ (half * 64)) + slot_ + group * kFeatures * kRowBytes);
    }
    __syncwarp();
    if (weights_cursor_.left > 0) {
      copy_weights(weights_cursor_, slot_);
      copy_x(weights_cursor_, slot_);
      advance(weights_cursor_);
    }
    ptx::commit_copies();
    slot_ = slot_ + kStepBytes == kSlots * kStepBytes ? 0 : slot_ + kStepBytes;
  }

 private:
  // What is to be copied next.
  struct Cursor {
    const char* weights;  // of this lane, in the first group
    int unit, input;      // `input`: of this lane
    int left_of_pass, left;
  };

  // Where in a slot a piece of a row lies: the same piece of eight rows lies in eight different banks.
  __device__ static uint32_t swizzled(int row, int piece) {
    return static_cast<uint32_t>(row * kRowBytes + (piece ^ (row & 7)) * 16);
  }
  // From a row to the one kRowsAtOnce behind it.
  __device__ static uint32_t next_rows(uint32_t to) {
    return (to ^ (kRowsAtOnce * 16)) + kRowsAtOnce * kRowBytes;
  }

  __device__ __forceinline__ static uint4 load(uint32_t from) {
    uint32_t pieces[4];
    ptx::load_matrices(pieces, from);
    return make_uint4(pieces[0], pieces[1], pieces[2], pieces[3]);
  }

  __device__ __forceinline__ void begin(Cursor& cursor) const {
    cursor.unit = share_.begin;
    cursor.left = chunks_of_pass_ * ((share_.end - share_.begin + share_.at_once - 1) / share_.at_once);
    begin_pass(cursor);
  }
  __device__ __forceinline__ void begin_pass(Cursor& cursor) const {
    cursor.input = input_;
    cursor.left_of_pass = chunks_of_pass_;
    const int64_t row = first_feature(params_, cursor.unit) + row_;
    cursor.weights = static_cast<const char*>(params_.weight) + 2 * (row * params_.in_features + input_);
  }
  __device__ __forceinline__ void advance(Cursor& cursor) const {
    cursor.input += kFewRowsWarps * kChunkElements;
    cursor.weights += 2 * kFewRowsWarps * kChunkElements;
    --cursor.left;
    if (--cursor.left_of_pass > 0) return;
    cursor.unit += share_.at_once;
    begin_pass(cursor);
  }

  __device__ __forceinline__ void copy_weights(const Cursor& cursor, int slot) const {
    const int num_groups = (share_.end - cursor.unit) * groups_of_unit(params_);
    const bool valid = cursor.input < params_.in_features;
    const int64_t next_rows_bytes = 2 * kRowsAtOnce * int64_t{params_.in_features};
    const char* from[2] = {cursor.weights, cursor.weights + odd_group_bytes_};
    uint32_t to = to_ + slot;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (group >= num_groups) break;
      const char*& rows = from[group % 2];
      ptx::copy_async_16(to, rows, valid);
      ptx::copy_async_16(next_rows(to), rows + next_rows_bytes, valid);
      rows += group_pair_bytes_;
      // Behind a head's first half comes the next head's.
      if constexpr (kHeads)
        if (((cursor.unit + group / 2 + 1) & (params_.head_half / kFeatures - 1)) == 0)
          rows += odd_group_bytes_;
      to += kFeatures * kRowBytes;
    }
  }
  __device__ __forceinline__ void copy_x(const Cursor& cursor, int slot) const {
    const bool valid = cursor.input < params_.in_features;
    const char* const x = static_cast<const char*>(params_.x) + 2 * int64_t{cursor.input};
    const char* const norm = static_cast<const char*>(params_.norm) + 2 * int64_t{cursor.input};
    const uint32_t to = to_ + slot + kWeightBytes;
    if constexpr (kTokens == 1) {
      // Rows 0 and 1 are x and the norm; the latter is read as it came, in one piece.
      const int exchanged = (row_ & 1) * 16;
      if (row_ == 0 || (row_ == 1 && params_.norm != nullptr))
        ptx::copy_async_16(to ^ exchanged, row_ == 0 ? x : norm, valid);
    } else {
#pragma unroll
      for (int row = 0; row < kTokens; row += kRowsAtOnce) {
        const int token = row + row_;
        const bool given = valid && token < params_.num_rows;
        const uint32_t to_row =
            row % 8 == 0 ? to + row * kRowBytes : next_rows(to + (row - kRowsAtOnce) * kRowBytes);
        ptx::copy_async_16(to_row, x + (given ? 2 * token * params_.x_stride : 0), given);
      }
      if (params_.norm != nullptr && row_ == 0) ptx::copy_async_16(to + kTokens * kRowBytes, norm, valid);
    }
  }

  const FewRowsParams& params_;
  const FeatureShare share_;
  int row_, input_;  // what this lane copies of each kRowsAtOnce rows, and from where on in the first chunk
  uint32_t to_;
  uint32_t from_, x_from_, norm_from_;  // of the first halves
  int chunks_of_pass_;
  int64_t group_pair_bytes_, odd_group_bytes_;  // from a group to the next but one, to the next
  int slot_ = 0;                                // where the oldest chunk's begins
  Cursor weights_cursor_;
};

}  // namespace attend::kernels::cuda
