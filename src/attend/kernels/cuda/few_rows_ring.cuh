// A warp's share of the weights and of x on their way through shared memory.
#pragma once

#include <cstdint>

#include "attend/kernels/cuda/few_rows_kernel.h"
#include "attend/kernels/cuda/ptx/copy.cuh"

namespace attend::kernels::cuda {

inline constexpr int kFewRowsWarps = 4;
inline constexpr int kFeatures = 8;  // rows of weights that the tensor cores take at once: a group
inline constexpr int kPieceElements = 8;
inline constexpr int kChunkPieces = 8;  // of 16 bytes: a warp takes a row's inputs by whole lines of memory
inline constexpr int kChunkElements = kChunkPieces * kPieceElements;
// Of all warps: two such CTAs fit an SM, so that one's first weights are there when the other ends.
inline constexpr int kRingBytes = 88 << 10;

// The output features of a CTA, which it goes through a few at a time. A unit is eight of them: one group of
// weight rows, or two (gate and up).
struct FeatureShare {
  int begin, end;  // in units
  int units_at_once;

  __device__ FeatureShare(const FewRowsParams& params, int num_groups)
      : units_at_once(params.gated ? num_groups / 2 : num_groups) {
    const int num_units = (params.out_features + kFeatures - 1) / kFeatures;
    const auto share = [&](unsigned cta) { return static_cast<int>(int64_t{num_units} * cta / gridDim.x); };
    begin = share(blockIdx.x);
    end = share(blockIdx.x + 1);
  }
};

// Slots of a chunk each: kGroups groups of weight rows, kTokens rows of x and one of the norm's weights. The
// order of chunks is that of FewRowsCta, across the CTA's units; a warp copies for itself alone.
template <int kGroups, int kTokens>
class FewRowsRing {
  static constexpr int kRowBytes = kChunkPieces * 16;
  static constexpr int kWeightRows = kGroups * kFeatures;
  static constexpr int kSlotBytes = (kWeightRows + kTokens + 1) * kRowBytes;
  static constexpr int kRowsAtOnce = 32 / kChunkPieces;

 public:
  static constexpr int kSlots = kRingBytes / (kFewRowsWarps * kSlotBytes);
  static constexpr int kSharedBytes = kFewRowsWarps * kSlots * kSlotBytes;
  static_assert(kSlots >= 2);

  __device__ FewRowsRing(const FewRowsParams& params, const FeatureShare& share, char* shared)
      : params_(params),
        share_(share),
        row_(static_cast<int>(threadIdx.x) % 32 / kChunkPieces),
        piece_(static_cast<int>(threadIdx.x) % kChunkPieces),
        warp_(static_cast<int>(threadIdx.x) / 32),
        num_chunks_((params.in_features + kChunkElements - 1) / kChunkElements),
        shared_(shared + warp_ * kSlots * kSlotBytes),
        to_(ptx::shared_address(shared_) +
            static_cast<uint32_t>(row_ * kRowBytes + swizzled(row_, piece_) * 16)) {}

  // Fills every slot: with weights, then, once `before_x()` has returned, with x.
  template <class BeforeX>
  __device__ __forceinline__ void start(const BeforeX& before_x) {
    Cursor cursor = first();
#pragma unroll 1
    for (int slot = 0; slot < kSlots; ++slot) {
      copy_weights(cursor, slot);
      advance(cursor);
    }
    before_x();
    next_ = first();
#pragma unroll 1
    for (int slot = 0; slot < kSlots; ++slot) {
      copy_x(next_, slot);
      advance(next_);
      ptx::commit_copies();
    }
  }

  // The oldest chunk is there for the whole warp.
  __device__ __forceinline__ void wait() const {
    ptx::wait_copies<kSlots - 1>();
    __syncwarp();
  }
  // Piece `piece` of a row of the oldest chunk: row `row` of weight group `group`, of x, of the norm.
  __device__ uint4 weight(int group, int row, int piece) const {
    return read(group * kFeatures + row, swizzled(row, piece));
  }
  __device__ uint4 x(int token, int piece) const { return read(kWeightRows + token, swizzled(token, piece)); }
  __device__ uint4 norm(int piece) const { return read(kWeightRows + kTokens, piece); }
  // The oldest chunk's slot takes a new one.
  __device__ __forceinline__ void refill() {
    __syncwarp();
    copy_weights(next_, slot_);
    copy_x(next_, slot_);
    advance(next_);
    ptx::commit_copies();
    slot_ = slot_ + 1 == kSlots ? 0 : slot_ + 1;
  }

 private:
  struct Cursor {
    int unit, chunk;
  };

  // Odd rows have their halves exchanged, so that eight lanes that read four pieces of two rows meet in no
  // bank.
  __device__ static int swizzled(int row, int piece) { return piece ^ ((row & 1) << 2); }

  __device__ Cursor first() const { return {share_.begin, warp_}; }
  __device__ __forceinline__ void advance(Cursor& cursor) const {
    cursor.chunk += kFewRowsWarps;
    if (cursor.chunk < num_chunks_) return;
    cursor.chunk = warp_;
    cursor.unit += share_.units_at_once;
  }
  __device__ bool is_chunk(const Cursor& cursor) const {
    return cursor.unit < share_.end && cursor.chunk < num_chunks_;
  }
  __device__ uint4 read(int row, int piece) const {
    return *reinterpret_cast<const uint4*>(shared_ + slot_ * kSlotBytes + row * kRowBytes + piece * 16);
  }
  __device__ const char* element(const void* data, int64_t i) const {
    return static_cast<const char*>(data) + 2 * i;
  }

  __device__ __forceinline__ void copy_weights(const Cursor& cursor, int slot) const {
    if (!is_chunk(cursor)) return;
    const int64_t width = params_.in_features;
    const int input = cursor.chunk * kChunkElements + piece_ * kPieceElements;
    const int num_features = min(params_.out_features, share_.end * kFeatures);
    const uint32_t to = to_ + static_cast<uint32_t>(slot * kSlotBytes);
    const int first_feature = cursor.unit * kFeatures + row_;
#pragma unroll
    for (int row = 0; row < kWeightRows; row += kRowsAtOnce) {
      const int group = row / kFeatures;
      const int unit = params_.gated ? group / 2 : group;
      const int feature = first_feature + unit * kFeatures + row % kFeatures;
      const int weight_row = feature + (params_.gated ? group % 2 * params_.out_features : 0);
      const bool valid = feature < num_features && input < params_.in_features;
      ptx::copy_async_16(to + row * kRowBytes,
                         element(params_.weight, valid ? weight_row * width + input : 0), valid);
    }
    if (params_.norm != nullptr && row_ == 0) {
      const bool valid = input < params_.in_features;
      ptx::copy_async_16(to + (kWeightRows + kTokens) * kRowBytes, element(params_.norm, valid ? input : 0),
                         valid);
    }
  }
  __device__ __forceinline__ void copy_x(const Cursor& cursor, int slot) const {
    if (!is_chunk(cursor)) return;
    const int input = cursor.chunk * kChunkElements + piece_ * kPieceElements;
    const uint32_t to = to_ + static_cast<uint32_t>(slot * kSlotBytes + kWeightRows * kRowBytes);
#pragma unroll
    for (int row = 0; row < kTokens; row += kRowsAtOnce) {
      const int token = row + row_;
      const bool valid = token < params_.num_rows && input < params_.in_features;
      ptx::copy_async_16(to + row * kRowBytes,
                         element(params_.x, valid ? token * params_.x_stride + input : 0), valid);
    }
  }

  const FewRowsParams& params_;
  const FeatureShare share_;
  int row_, piece_, warp_;  // row_, piece_: what this lane copies of each kRowsAtOnce rows
  int num_chunks_;
  const char* shared_;
  uint32_t to_;
  int slot_ = 0;  // of the oldest chunk
  Cursor next_{};
};

}  // namespace attend::kernels::cuda
