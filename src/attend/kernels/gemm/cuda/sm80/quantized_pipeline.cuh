// Copies quantized weights to shared memory: the producer of skinny_quantized.cuh.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/copy_word.cuh"
#include "attend/kernels/gemm/cuda/common/load_weight.cuh"
#include "attend/kernels/gemm/cuda/sm80/skinny_outputs.cuh"
#include "attend/kernels/gemm/cuda/sm80/skinny_quantized_kernel.h"

namespace attend::kernels::cuda::sm80 {

// Producer: each warp has its own cp.async pipeline. A stage is a K-block of a pair of groups of eight rows
// of W (the 16 rows of operand A), with the scales and zeros of its rows. Stages follow the order in which
// the warp multiplies them: pair after pair, and the warp's K-blocks of each.
template <WeightFormat kFormat, int kStages, bool kHeads>
class QuantizedPipeline {
  static constexpr int kPairRows = 2 * kFeatures;
  static constexpr int kWeightBytes = kPairRows * kRowBytes;
  static constexpr int kWordBytes = 4;  // bytes of a row's scales, and of its zeros
  static constexpr int kZerosOffset = kWeightBytes + kPairRows * kWordBytes;
  static constexpr int kStageBytes = kZerosOffset + kPairRows * kWordBytes;
  static constexpr int kStageStride = kSkinnyWarps * kStageBytes;
  static constexpr bool kInt4 = kFormat == WeightFormat::kInt4;

 public:
  static constexpr int kSharedBytes = kStages * kStageStride;

  // Addresses of a warp's stage.
  struct Stage {
    uint32_t codes;  // this lane's values in ldmatrix order: of the first group and half of the K-block
    uint32_t words;  // scales of this lane's row of the first group
  };

  __device__ QuantizedPipeline(const SkinnyGemmParams& product, const QuantizedWeight& weight,
                               const CtaRange& range, uint32_t shared)
      : range_(range), joined_(kHeads || product.gated) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    stages_ = shared + static_cast<uint32_t>(warp * kStageBytes);
    to_ = swizzled_piece(lane / kPieces, lane % kPieces);
    from_ = swizzled_piece(lane % 8, lane / 8);
    row_bytes_ = kInt4 ? weight.in_features / 2 : weight.in_features;
    codes_ = static_cast<const char*>(weight.data) + int64_t{row_bytes_} * (lane / kPieces) +
             lane % kPieces * 16 + warp * kRowBytes;
    next_rows_bytes_ = int64_t{row_bytes_} * (32 / kPieces);
    const int to_second_group = kHeads ? product.head_half : product.gated ? product.out_features : kFeatures;
    second_group_bytes_ = int64_t{row_bytes_} * to_second_group;
    if constexpr (kHeads) {
      head_half_ = product.head_half;
      head_shift_ = 31 - __clz(product.head_half / kFeatures);
    }
    locate_words(product, weight, warp, lane, to_second_group);
    k_blocks_per_pair_ = (range.num_k_blocks - warp + kSkinnyWarps - 1) / kSkinnyWarps;
    left_ = num_pairs(range.end - range.begin) * k_blocks_per_pair_;
    if (left_ > 0) begin_pair();
  }

  // Returns the number of pairs of `num_n_tiles` n-tiles.
  __device__ __forceinline__ int num_pairs(int num_n_tiles) const {
    return joined_ ? num_n_tiles : (num_n_tiles + 1) / 2;
  }

  // Fills the stages that are loaded before x. Loads return in issue order, so x waits for at most half of
  // all of W, or half of the stages.
  __device__ __forceinline__ void start() {
    num_started_ = min(kStages / 2, (left_ + 1) / 2);
    fill(0, num_started_);
  }
  // Fills the remaining stages.
  __device__ __forceinline__ void start_rest() { fill(num_started_, kStages); }

  // Waits for the oldest stage.
  __device__ __forceinline__ Stage wait() const {
    ptx::cp_async_wait_group<kStages - 1>();
    __syncwarp();
    const uint32_t begin = stages_ + stage_;
    return {begin + from_, begin + kWeightBytes + static_cast<uint32_t>(threadIdx.x % 32 / 4) * kWordBytes};
  }
  // Refills the oldest stage, which no lane of the warp reads any more.
  __device__ __forceinline__ void refill() {
    __syncwarp();
    copy_next(stages_ + stage_);
    stage_ = stage_ + kStageStride == kSharedBytes ? 0 : stage_ + kStageStride;
  }

  __device__ static uint32_t half(uint32_t codes, int half) { return codes ^ (half * (kRowBytes / 2)); }
  __device__ static uint32_t group(uint32_t codes, int group) {
    return codes + group * kFeatures * kRowBytes;
  }
  // Loads the scales of this lane's row of a group; zeros() is analogous.
  __device__ static uint32_t scales(const Stage& stage, int group) {
    return ptx::ld_shared_4(stage.words + group * kFeatures * kWordBytes);
  }
  __device__ static uint32_t zeros(const Stage& stage, int group) {
    return ptx::ld_shared_4(stage.words + (kPairRows + group * kFeatures) * kWordBytes);
  }

 private:
  __device__ __forceinline__ void locate_words(const SkinnyGemmParams& product, const QuantizedWeight& weight,
                                               int warp, int lane, int to_second_group) {
    const bool zeros = kInt4 && lane >= kPairRows;
    words_ = static_cast<const char*>(zeros ? weight.zeros : weight.scales);
    if (!kInt4 && lane >= kPairRows) words_ = nullptr;
    word_row_bytes_ = weight.scale_columns * (zeros ? 1 : kInt4 ? 2 : 4);
    word_row_ = lane % kFeatures;
    word_second_group_ = lane / kFeatures % 2 == 0 ? 0 : to_second_group;
    const int num_rows = product.out_features * (product.gated ? 2 : 1);
    outs_shift_ = weight.group_outs >= num_rows ? 31 : 31 - __clz(weight.group_outs);
    // Position of the word of the warp's first K-block in a row, and the distance to its next one. Per
    // K-block, int4 has two scales of two bytes, or two zeros of one byte; 8 bits have a scale of four bytes
    // for one or several K-blocks.
    if constexpr (kInt4) {
      first_word_ = zeros ? 2 * warp & ~3 : 4 * warp;
      word_step_ = (zeros ? 2 : 4) * kSkinnyWarps;
    } else {
      first_word_ = 4 * input_group(weight, warp * kByteRowInputs);
      word_step_ = 4 * input_group(weight, kSkinnyWarps * kByteRowInputs);
    }
  }

  // Returns the first row of a pair's first group.
  __device__ __forceinline__ int first_row() const {
    if (!joined_) return (range_.begin + 2 * pair_) * kFeatures;
    const int n_tile = range_.begin + pair_;
    if constexpr (kHeads) return n_tile * kFeatures + (n_tile >> head_shift_) * head_half_;
    return n_tile * kFeatures;
  }

  __device__ __forceinline__ void begin_pair() {
    const int row = first_row();
    // If the second group does not exist, the first one is read again.
    const bool has_second = joined_ || range_.begin + 2 * pair_ + 1 < range_.end;
    next_ = codes_ + int64_t{row} * row_bytes_;
    to_second_ = has_second ? second_group_bytes_ : 0;
    const int word_row = (row + word_row_ + (has_second ? word_second_group_ : 0)) >> outs_shift_;
    if (words_ != nullptr) next_word_ = words_ + int64_t{word_row} * word_row_bytes_ + first_word_;
    left_in_pair_ = k_blocks_per_pair_;
  }

  __device__ __forceinline__ void fill(int begin, int end) {
#pragma unroll 1
    for (int stage = begin; stage < end; ++stage)
      copy_next(stages_ + static_cast<uint32_t>(stage * kStageStride));
  }

  // Copies the next K-block, if there is one, as one cp.async group.
  __device__ __forceinline__ void copy_next(uint32_t stage) {
    if (left_ > 0) {
      copy_group(next_, stage + to_);
      copy_group(next_ + to_second_, stage + to_ + kFeatures * kRowBytes);
      if (words_ != nullptr)
        ptx::cp_async_4(stage + kWeightBytes + threadIdx.x % 32 * kWordBytes, next_word_);
      next_ += kSkinnyWarps * kRowBytes;
      next_word_ += word_step_;
      --left_;
      if (--left_in_pair_ == 0 && left_ > 0) {
        ++pair_;
        begin_pair();
      }
    }
    ptx::cp_async_commit_group();
  }

  __device__ __forceinline__ void copy_group(const char* from, uint32_t to) const {
    constexpr int kRowsAtOnce = 32 / kPieces;
    ptx::cp_async_16(to, from);
    // The other four rows are swizzled in the opposite order.
    ptx::cp_async_16((to ^ (kRowsAtOnce * 16)) + kRowsAtOnce * kRowBytes, from + next_rows_bytes_);
  }

  const CtaRange range_;
  const bool joined_;  // an n-tile has two groups
  uint32_t stages_, to_, from_;
  uint32_t stage_ = 0;  // offset of the oldest stage
  // This lane's rows, its word of scales or zeros, and its next copies.
  const char *codes_, *words_, *next_, *next_word_ = nullptr;
  int64_t second_group_bytes_, next_rows_bytes_, to_second_;
  int row_bytes_, word_row_, word_second_group_, word_row_bytes_, first_word_, word_step_;
  int outs_shift_, head_half_, head_shift_;
  int k_blocks_per_pair_, num_started_ = 0;
  int pair_ = 0, left_, left_in_pair_;  // K-blocks left in all pairs and in this one
};

}  // namespace attend::kernels::cuda::sm80
