// Pairs of tokens and experts, sorted by expert, in a CTA's shared memory. With few pairs every CTA sorts
// them itself, which is faster than a separate launch.
#pragma once

#include <cstdint>

namespace attend::kernels::cuda {

// Tiles of up to kTileRows rows of one expert, expert after expert. Rows of an expert are in the order of
// their pairs. Supports up to kMaxPairs pairs.
template <int kThreads, int kTileRows, int kMaxPairs>
class ExpertRows {
 public:
  struct Tile {
    int expert, first_row, num_rows;
  };

  // Called by all threads; the rows are available when it returns. `experts`: expert of each pair, for
  // num_pairs / top_k tokens with distinct experts each.
  __device__ __forceinline__ void sort(const int32_t* experts, int num_pairs, int top_k, int num_experts) {
    if (num_pairs <= 32 && num_pairs <= kTileRows * top_k) {
      if (threadIdx.x < 32) sort_with_warp(experts, num_pairs);
      __syncthreads();
      return;
    }
    const int thread = static_cast<int>(threadIdx.x);
    constexpr int kWordPairs = 4;  // pairs that a thread reads with one load
    const int num_words = (num_pairs + kWordPairs - 1) / kWordPairs;
    for (int i = thread; i < num_words * kWordPairs; i += kThreads)
      pair_expert_[i] = i < num_pairs ? static_cast<uint16_t>(experts[i]) : kNone;
    __syncthreads();
    // Threads split the pairs of each expert: neighboring threads have consecutive parts. There is more than
    // one part only if every expert has separate threads.
    int parts = 1;
    while (2 * parts * num_experts <= kThreads && 2 * parts <= num_words && parts < 32) parts *= 2;
    const int part = thread % parts;
    const int begin = num_words * part / parts, end = num_words * (part + 1) / parts;
    const auto* const words = reinterpret_cast<const ushort4*>(pair_expert_);
    int before = 0;  // pairs of the expert in earlier parts
    for (int expert = thread / parts; expert < round_up(num_experts, kThreads / parts);
         expert += kThreads / parts) {
      int count = 0;
      for (int i = begin; i < end; ++i) {
        const ushort4 word = words[i];
        count += (word.x == expert) + (word.y == expert) + (word.z == expert) + (word.w == expert);
      }
      __syncwarp();
      int up_to = count;
      for (int step = 1; step < parts; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, up_to, step);
        if (part >= step) up_to += other;
      }
      before = up_to - count;
      if (part == parts - 1 && expert < num_experts) first_row_[expert] = static_cast<uint16_t>(up_to);
    }
    __syncthreads();
    if (thread < 32) count_before(num_experts);
    __syncthreads();
    for (int expert = thread / parts; expert < num_experts; expert += kThreads / parts) {
      if (part == 0)
        for (int tile = first_tile_[expert]; tile < first_tile_[expert + 1]; ++tile)
          set_tile(tile, expert, first_row_[expert] + (tile - first_tile_[expert]) * kTileRows,
                   first_row_[expert + 1]);
      int row = first_row_[expert] + before;
      if (first_row_[expert] == first_row_[expert + 1]) continue;
      for (int i = begin; i < end; ++i) {
        const ushort4 word = words[i];
        if (word.x == expert) row_pair_[row++] = static_cast<uint16_t>(kWordPairs * i);
        if (word.y == expert) row_pair_[row++] = static_cast<uint16_t>(kWordPairs * i + 1);
        if (word.z == expert) row_pair_[row++] = static_cast<uint16_t>(kWordPairs * i + 2);
        if (word.w == expert) row_pair_[row++] = static_cast<uint16_t>(kWordPairs * i + 3);
      }
    }
    __syncthreads();
  }

  __device__ __forceinline__ int num_tiles() const { return num_tiles_; }
  __device__ __forceinline__ Tile tile(int i) const {
    const ushort4 tile = tiles_[i];
    return {.expert = tile.x, .first_row = tile.y, .num_rows = tile.z};
  }
  __device__ __forceinline__ int row_pair(int row) const { return row_pair_[row]; }

 private:
  static constexpr uint16_t kNone = 0xffff;

  __device__ static int round_up(int count, int of) { return (count + of - 1) / of * of; }

  __device__ __forceinline__ void set_tile(int i, int expert, int first_row, int end_row) {
    tiles_[i] = make_ushort4(static_cast<uint16_t>(expert), static_cast<uint16_t>(first_row),
                             static_cast<uint16_t>(min(kTileRows, end_row - first_row)), 0);
  }

  // Called by one warp, with one pair per lane: an expert's rows fit into one tile.
  __device__ __forceinline__ void sort_with_warp(const int32_t* experts, int num_pairs) {
    const int lane = static_cast<int>(threadIdx.x);
    const int expert = lane < num_pairs ? experts[lane] : kNone;
    int row = 0, num_rows = 0, tile = 0;
    bool first = lane < num_pairs;
    for (int i = 0; i < num_pairs; ++i) {
      const int other = __shfl_sync(0xffffffffu, expert, i);
      const bool same = other == expert;
      row += other < expert || (same && i < lane) ? 1 : 0;
      num_rows += same ? 1 : 0;
      first = first && !(same && i < lane);
    }
    const uint32_t firsts = __ballot_sync(0xffffffffu, first);
    for (int i = 0; i < num_pairs; ++i)
      tile += __shfl_sync(0xffffffffu, expert, i) < expert && (firsts >> i & 1u) != 0 ? 1 : 0;
    if (lane < num_pairs) row_pair_[row] = static_cast<uint16_t>(lane);
    if (first) set_tile(tile, expert, row, row + num_rows);
    if (lane == 0) num_tiles_ = __popc(firsts);
  }

  // Called by one warp: converts counts in first_row_ to first rows, and computes first_tile_.
  __device__ __forceinline__ void count_before(int num_experts) {
    const int lane = static_cast<int>(threadIdx.x);
    int rows = 0, tiles = 0;
    for (int first = 0; first < num_experts; first += 32) {
      const int expert = first + lane;
      const int count = expert < num_experts ? first_row_[expert] : 0;
      const int own_tiles = (count + kTileRows - 1) / kTileRows;
      int rows_up_to = count, tiles_up_to = own_tiles;
      for (int step = 1; step < 32; step *= 2) {
        const int other_rows = __shfl_up_sync(0xffffffffu, rows_up_to, step),
                  other_tiles = __shfl_up_sync(0xffffffffu, tiles_up_to, step);
        if (lane >= step) {
          rows_up_to += other_rows;
          tiles_up_to += other_tiles;
        }
      }
      if (expert < num_experts) {
        first_row_[expert] = rows + rows_up_to - count;
        first_tile_[expert] = static_cast<uint16_t>(tiles + tiles_up_to - own_tiles);
      }
      rows += __shfl_sync(0xffffffffu, rows_up_to, 31);
      tiles += __shfl_sync(0xffffffffu, tiles_up_to, 31);
    }
    if (lane == 0) {
      first_row_[num_experts] = static_cast<uint16_t>(rows);
      first_tile_[num_experts] = static_cast<uint16_t>(tiles);
      num_tiles_ = tiles;
    }
  }

  static constexpr int kMaxExperts = 512;

  alignas(16) ushort4 tiles_[kMaxPairs];  // expert, first row, number of rows
  uint16_t pair_expert_[kMaxPairs];
  uint16_t row_pair_[kMaxPairs];
  uint16_t first_row_[kMaxExperts + 1], first_tile_[kMaxExperts + 1];
  int num_tiles_;
};

}  // namespace attend::kernels::cuda
