// Pipeline of scaled latent rows: stages of unconverted rows, filled with cp.async through the page index
// while others are read, and one 16-bit KV tile into which each stage is converted in turn.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"
#include "attend/kernels/attention/cuda/common/fp8_convert.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/kv_store/cuda/scaled_rows.cuh"

namespace attend::kernels::cuda::sm80 {

// Same interface as KvPipeline; convert() is called between refill() and the first use of k(). Eight
// neighboring threads share a row.
template <class T, int kKeys, int kThreads, int kStages>
class ScaledRowPipeline {
  using Tile = SwizzledRows<kScaledWidth * 2>;
  static constexpr int kLanes = 8, kPieces = kScaledBytes / 16, kRounds = (kPieces + kLanes - 1) / kLanes;
  static constexpr int kRopePiece = kScaledRopeAt / 16;
  static constexpr int kTileBytes = kKeys * kScaledWidth * 2, kStageBytes = kKeys * kScaledBytes;
  static constexpr int kAhead = kStages - 1;  // tiles in flight while one is computed
  static_assert(kThreads == kLanes * kKeys);
  // Each of a lane's pieces, which are kLanes apart, has a single descale.
  static_assert(kScaledGroup == 16 * kLanes && kScaledRank % kScaledGroup == 0);
  static_assert(kScaledWidth - kScaledRank == 8 * kLanes);

 public:
  static constexpr int kSharedBytes = kTileBytes + kStages * kStageBytes;

  __device__ ScaledRowPipeline(const AttentionParams& params, char* shared)
      : params_(params), tile_(ptx::shared_address(shared)) {}

  __device__ void set_tiles(const RowTile& tile, int, int first_position, int end, int count) {
    request_ = tile.request;
    kv_begin_ = tile.kv_begin;
    kv_end_ = end;
    first_position_ = first_position;
    count_ = count;
  }

  // Looks up the rows of the first tiles.
  __device__ void locate() {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) pages_[i] = page_at(i);
    next_page_ = page_at(kAhead);
  }
  __device__ int fill_before(int end) {
    const int num_whole = max(0, end - first_position_) / kKeys;
    const int num_tiles = min(kAhead, end >= kv_end_ ? count_ : num_whole);
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (i < num_tiles) copy(i, pages_[i]);
    return num_tiles;
  }
  __device__ void fill(int num_filled) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (i >= num_filled) copy(i, pages_[i]);
      ptx::cp_async_commit_group();
    }
  }

  // All threads have then finished tile i - 1.
  __device__ void wait(int) {
    ptx::cp_async_wait_group<kAhead - 1>();
    __syncthreads();
  }
  __device__ void refill(int i) {
    copy(i + kAhead, next_page_);
    ptx::cp_async_commit_group();
    next_page_ = page_at(i + kAhead + 1);
  }
  // A warp reads 4 rows at a time, 128 bytes of each, and writes them as 256.
  __device__ void convert(int i) const {
    const uint32_t from = stage(i) + row() * kScaledBytes;
    const bool upper = lane() >= kLanes / 2;
#pragma unroll
    for (int group = 0; group < kScaledRank / kScaledGroup; ++group) {
      const int piece = group * kLanes + lane();
      const uint4 bytes = ptx::ld_shared_16(from + piece * 16);
      const float descale = ld_shared_float(from + kScaledScalesAt + group * 4);
      const uint4 low{converted(low_pair<Element::kF8E4M3>(bytes.x), descale),
                      converted(high_pair<Element::kF8E4M3>(bytes.x), descale),
                      converted(low_pair<Element::kF8E4M3>(bytes.y), descale),
                      converted(high_pair<Element::kF8E4M3>(bytes.y), descale)};
      const uint4 high{converted(low_pair<Element::kF8E4M3>(bytes.z), descale),
                       converted(high_pair<Element::kF8E4M3>(bytes.z), descale),
                       converted(low_pair<Element::kF8E4M3>(bytes.w), descale),
                       converted(high_pair<Element::kF8E4M3>(bytes.w), descale)};
      // Eight lanes write to different banks: half of them write the upper halves first.
      ptx::st_shared_16(tile_ + Tile::offset(row(), 2 * piece + upper), upper ? high : low);
      ptx::st_shared_16(tile_ + Tile::offset(row(), 2 * piece + !upper), upper ? low : high);
    }
    const uint4 rope = ptx::ld_shared_16(from + (kRopePiece + lane()) * 16);
    ptx::st_shared_16(tile_ + Tile::offset(row(), kScaledRank / 8 + lane()),
                      {from_bfloat16(rope.x, T()), from_bfloat16(rope.y, T()), from_bfloat16(rope.z, T()),
                       from_bfloat16(rope.w, T())});
    __syncthreads();
  }
  __device__ void publish_next(int) const {}

  __device__ int count() const { return count_; }
  __device__ int first_position(int i) const { return first_position_ + i * kKeys; }
  __device__ uint32_t k(int) const { return tile_; }

 private:
  __device__ static int row() { return static_cast<int>(threadIdx.x) / kLanes; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kLanes; }
  __device__ uint32_t stage(int i) const {
    return tile_ + kTileBytes + static_cast<uint32_t>(i % kStages * kStageBytes);
  }

  // Returns the page of this thread's row of tile i; -1: none.
  __device__ int page_at(int i) const {
    const int p = first_position(i) + row();
    return i < count_ && p >= kv_begin_ && p < kv_end_ ? find_page(params_.index, request_, p) : -1;
  }
  // Does nothing if there is no tile i; rows without a page become zeros.
  __device__ void copy(int i, int page) const {
    if (i >= count_) return;
    const int in_page = (first_position(i) + row()) & (params_.index.page_size - 1);
    const bool valid = page >= 0;
    const char* const from =
        static_cast<const char*>(params_.k.data) +
        (valid ? page * params_.k.page_stride + in_page * params_.k.token_stride : int64_t{0});
    const uint32_t to = stage(i) + row() * kScaledBytes;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int piece = round * kLanes + lane();
      if (piece < kPieces) ptx::cp_async_16(to + piece * 16, from + piece * 16, valid);
    }
  }

  // Multiplies two f16 values by the descale.
  __device__ static uint32_t converted(uint32_t pair, float descale) {
    const float2 numbers = __half22float2(*reinterpret_cast<const __half2*>(&pair));
    return pack(numbers.x * descale, numbers.y * descale, T());
  }
  __device__ static uint32_t from_bfloat16(uint32_t pair, __nv_bfloat16) { return pair; }
  __device__ static uint32_t from_bfloat16(uint32_t pair, __half) {
    return pack(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u), __half());
  }
  __device__ static float ld_shared_float(uint32_t from) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];\n" : "=f"(value) : "r"(from) : "memory");
    return value;
  }

  const AttentionParams& params_;
  uint32_t tile_;
  int request_, count_;
  int kv_begin_, kv_end_, first_position_;
  int pages_[kAhead], next_page_ = -1;
};

}  // namespace attend::kernels::cuda::sm80
