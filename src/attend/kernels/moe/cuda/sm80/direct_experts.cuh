// Direct experts, of few rows each, whose W goes from memory into registers: as lone_token_experts.cuh, of up
// to 8 rows of an expert, the 8 columns of mma.m16n8k16.
//
//   tile        up to 8 rows of one expert x 16 rows of W: gate and up of 8 outputs, or 16 outputs
//   work        a CTA has an even share of all tiles, neighbours of one expert: their x stays
//   warps       8, all alike: some share a tile's K-blocks. Each loads W from memory into registers, kDepth
//               K-blocks ahead
//   registers   80 at most: three CTAs fit an SM
//   shared      the rows of x, in the order in which lanes take them; sums, twice; the rows of all experts
//   bytes       W once for each 8 rows of an expert; x once for each CTA, from L2
//   bound       widening W
//
// What is between the products lies in the order in which the second one's lanes take it.
#pragma once

#include <algorithm>

#include "attend/kernels/gemm/cuda/sm80/skinny_gemm_kernel.h"
#include "attend/kernels/moe/cuda/common/expert_rows.cuh"
#include "attend/kernels/moe/cuda/sm80/direct_experts_kernel.h"
#include "attend/kernels/moe/cuda/sm80/lone_token_experts.cuh"

namespace attend::kernels::cuda {

template <class T, class Rows, bool kGated>
class DirectExpertsCta {
  static constexpr int kTileRows = 8, kWeightRows = 16, kPieceInputs = 8;
  static constexpr int kOutputs = kGated ? kWeightRows / 2 : kWeightRows;  // of a warp's tile
  static constexpr int kSlices = kGated ? 2 : 4, kTiles = kLoneWarps / kSlices;
  static constexpr int kSumsOfWarp = kWeightRows * kTileRows, kSums = kLoneWarps * kSumsOfWarp;
  static constexpr int kPadBytes = 64;  // between rows of x, so that two of them lie in different banks
  static_assert(kTiles * kOutputs * kTileRows == kLoneThreads);

 public:
  using Sorted = ExpertRows<kLoneThreads, kTileRows, kMaxDirectPairs>;
  static constexpr int kSortedBytes = (static_cast<int>(sizeof(Sorted)) + 15) / 16 * 16;
  static __host__ __device__ int row_bytes(int in_features) {
    return (in_features + Rows::kInputs - 1) / Rows::kInputs * Rows::kInputs * 2 + kPadBytes;
  }
  static int shared_bytes(int in_features) {
    return kSortedBytes + 2 * kSums * static_cast<int>(sizeof(float)) + kTileRows * row_bytes(in_features);
  }

  __device__ DirectExpertsCta(const SkinnyExpertsParams& params, char* shared)
      : params_(params),
        sorted_(*reinterpret_cast<Sorted*>(shared)),
        sums_(reinterpret_cast<float*>(shared + kSortedBytes)),
        x_(ptx::shared_address(sums_ + 2 * kSums)),
        row_bytes_(row_bytes(params.in_features)),
        num_k_blocks_((params.in_features + Rows::kInputs - 1) / Rows::kInputs) {}

  __device__ __forceinline__ void run() {
    if constexpr (kGated) {
      ptx::griddepcontrol_wait();
      // Not before the wait: the next kernel reads early what the one before this has written.
      ptx::launch_dependents();
    }
    sorted_.sort(params_.experts, params_.num_tokens * params_.top_k, params_.top_k, params_.num_experts);
    const int chunks = (params_.out_features + kOutputs - 1) / kOutputs,
              groups = (chunks + kTiles - 1) / kTiles;  // of a tile of rows
    const int64_t num_groups = int64_t{sorted_.num_tiles()} * groups;
    const int begin = static_cast<int>(num_groups * blockIdx.x / gridDim.x),
              end = static_cast<int>(num_groups * (blockIdx.x + 1) / gridDim.x);
    if (begin == end) return;
    LoneTile<Rows> weights = weights_of(begin, groups);
    if (!kGated) {
      ptx::griddepcontrol_wait();
      ptx::launch_dependents();
    }
    int of_x = -1;  // the tile of rows whose x is there
    for (int group = begin; group < end; ++group) {
      const int tile_idx = group / groups;
      const typename Sorted::Tile tile = sorted_.tile(tile_idx);
      if (tile_idx != of_x) {
        // Nobody reads the x that was there: all have left their sums by it.
        bring_x(tile);
        of_x = tile_idx;
        __syncthreads();
      }
      float sums[4] = {};
      weights.multiply(x_ + lane() / 4 * row_bytes_, sums);
      // Lane l has rows of W l / 4 and l / 4 + 8, and rows of x 2 (l % 4) and the next. Twice as many sums as
      // a group has, so that those of one are read while the next ones are written.
      float* const all = sums_ + group % 2 * kSums;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        all[warp() * kSumsOfWarp + (lane() % 4 * 2 + i % 2) * kWeightRows + lane() / 4 + i / 2 * 8] = sums[i];
      // The first K-blocks of the next group come while this one's sums are added.
      if (group + 1 < end) weights = weights_of(group + 1, groups);
      __syncthreads();
      write(tile, (group - tile_idx * groups) * kTiles * kOutputs, all);
    }
  }

 private:
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  __device__ __forceinline__ GroupedGemmParams layout() const {
    GroupedGemmParams layout;
    layout.gated = kGated;
    layout.alternating = params_.alternating;
    layout.out_features = params_.out_features;
    layout.epilogue = params_.epilogue;
    return layout;
  }

  // This warp's share of a group, of so many to a tile of rows; asks for its first K-blocks.
  __device__ __forceinline__ LoneTile<Rows> weights_of(int group, int groups) const {
    const int tile_idx = group / groups;
    const int first = ((group - tile_idx * groups) * kTiles + warp() / kSlices) * kOutputs;
    const bool given = first < params_.out_features;
    return LoneTile<Rows>(rows_of(sorted_.tile(tile_idx).expert, given ? first : 0),
                          given ? num_k_blocks_ : 0, warp() % kSlices, kSlices);
  }

  // A lane's rows of W. Rows behind the last output are the last one again.
  __device__ __forceinline__ Rows rows_of(int expert, int first) const {
    const int last = params_.out_features - 1, low = min(first + lane() / 4, last);
    if constexpr (kGated)
      return Rows(params_.weight, expert_weight_row(layout(), expert, 0, low),
                  expert_weight_row(layout(), expert, 1, low));
    return Rows(params_.weight, expert_weight_row(layout(), expert, 0, low),
                expert_weight_row(layout(), expert, 0, min(first + 8 + lane() / 4, last)));
  }

  // Rows that there are not are left as they are: their sums are theirs alone, and nobody reads them.
  __device__ __forceinline__ void bring_x(const typename Sorted::Tile& tile) const {
    const int given = params_.in_features / kPieceInputs,
              pieces = num_k_blocks_ * (Rows::kInputs / kPieceInputs);
    const auto* const x = static_cast<const uint4*>(params_.x);
    for (int row = 0; row < tile.num_rows; ++row) {
      const int pair = sorted_.pair_of_row(tile.first_row + row);
      const auto* const from = x + int64_t{kGated ? pair / params_.top_k : pair} * given;
      for (int piece = static_cast<int>(threadIdx.x); piece < pieces; piece += kLoneThreads)
        ptx::cp_async_16(place(row, piece), from + (piece < given ? piece : 0), piece < given);
    }
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<0>();
    if constexpr (kGated)
      for (int row = 0; row < tile.num_rows; ++row)
        for (int piece = static_cast<int>(threadIdx.x); piece < pieces; piece += kLoneThreads)
          ptx::st_shared_16(place(row, piece), Rows::ordered(ptx::ld_shared_16(place(row, piece))));
  }
  __device__ __forceinline__ uint32_t place(int row, int piece) const {
    return x_ + row * row_bytes_ + Rows::place(piece) * 16;
  }

  // A thread has an output of a row, of one of the group's tiles.
  __device__ __forceinline__ void write(const typename Sorted::Tile& tile, int first_of_group,
                                        const float* sums) const {
    const int thread = static_cast<int>(threadIdx.x);
    const int own = thread % kOutputs, row = thread / kOutputs % kTileRows,
              of_group = thread / (kOutputs * kTileRows);
    const int first = first_of_group + of_group * kOutputs;
    if (row >= tile.num_rows || first + own >= params_.out_features) return;
    float sum = 0.0f, up = 0.0f;
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) {
      const float* const from = sums + (of_group * kSlices + slice) * kSumsOfWarp + row * kWeightRows + own;
      sum += from[0];
      if constexpr (kGated) up += from[kWeightRows / 2];
    }
    const int pair = sorted_.pair_of_row(tile.first_row + row);
    const float value = expert_output(layout(), tile.expert, pair, first + own, sum, up);
    const int to = kGated ? first + Rows::place_in_piece(own) : first + own;
    static_cast<T*>(params_.out)[int64_t{pair} * params_.out_features + to] = T(value);
  }

  const SkinnyExpertsParams& params_;
  Sorted& sorted_;
  float* const sums_;
  const uint32_t x_;
  const int row_bytes_, num_k_blocks_;
};

template <class T, class Rows, bool kGated>
__global__ void __launch_bounds__(kLoneThreads, kLoneCtasOfSm)
    direct_experts_kernel(const __grid_constant__ SkinnyExpertsParams params) {
  extern __shared__ __align__(16) char shared[];
  DirectExpertsCta<T, Rows, kGated>(params, shared).run();
}

template <class T, class Rows, bool kGated>
void launch_direct_instance(const SkinnyExpertsParams& params, void* stream) {
  constexpr auto kKernel = direct_experts_kernel<T, Rows, kGated>;
  allow_shared_memory<kKernel>(kMaxDirectBytes, "moe_experts: shared memory");
  launch_dependent<SkinnyExpertsParams>(
      kKernel, dim3(static_cast<unsigned>(num_sms() * kLoneCtasOfSm)), kLoneThreads,
      static_cast<size_t>(DirectExpertsCta<T, Rows, kGated>::shared_bytes(params.in_features)), stream,
      params, "moe_experts");
}

template <class T, class Rows>
void launch_direct_experts(const SkinnyExpertsParams& params, void* stream) {
  params.gated ? launch_direct_instance<T, Rows, true>(params, stream)
               : launch_direct_instance<T, Rows, false>(params, stream);
}

}  // namespace attend::kernels::cuda
