// Fixed splits: storage for the merged result of a CTA's previous splits.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::sm80 {

// Storage for the merged result of previous fixed splits while a CTA computes the next one. Each thread saves
// its own part of the rows: [pieces, kThreads] per 16 rows of a warp, the softmax state and then the output
// accumulators. `split_acc`: memory of the plan.
template <int kHeadDimV, int kRowBlocks, int kThreads>
class SplitAccumulators {
  static constexpr int kPieces = kHeadDimV / 8 + 1;
  static_assert(kRowBlocks * kPieces * kThreads * 4 <= split_accumulator_floats(kHeadDimV));

 public:
  __device__ explicit SplitAccumulators(float* split_acc)
      : accumulators_(reinterpret_cast<float4*>(split_acc)) {}

  template <class Warp>
  __device__ void put(const Warp& warp) const {
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
      float4* const pieces = row_block_pieces(b);
      pieces[0] = make_float4(warp.row_max[b][0], warp.row_max[b][1], warp.row_sum[b][0], warp.row_sum[b][1]);
#pragma unroll
      for (int n = 0; n < kHeadDimV / 8; ++n)
        pieces[(n + 1) * kThreads] =
            make_float4(warp.out[b][n][0], warp.out[b][n][1], warp.out[b][n][2], warp.out[b][n][3]);
    }
  }

  // Merges the saved accumulators (earlier keys) into the warp's rows. Eight loads are in flight, since score
  // registers are free here.
  template <class Warp>
  __device__ void add_to(Warp& warp, float softmax_scale_log2) const {
    constexpr int kAtOnce = 8;
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) {
      const float4* const pieces = row_block_pieces(b);
      const float4 state = pieces[0];
      const float row_max[2] = {state.x, state.y}, row_sum[2] = {state.z, state.w};
      MergeScales scales[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float new_max = fmaxf(row_max[half], warp.row_max[b][half]);
        scales[half] = merge_scales(row_max[half], warp.row_max[b][half], new_max, softmax_scale_log2);
        warp.row_max[b][half] = new_max;
        warp.row_sum[b][half] = merged(row_sum[half], warp.row_sum[b][half], scales[half]);
      }
#pragma unroll
      for (int first = 0; first < kHeadDimV / 8; first += kAtOnce) {
        float4 before[kAtOnce];
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) before[n] = pieces[(first + n + 1) * kThreads];
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {
          float(&out)[4] = warp.out[b][first + n];
          out[0] = merged(before[n].x, out[0], scales[0]);
          out[1] = merged(before[n].y, out[1], scales[0]);
          out[2] = merged(before[n].z, out[2], scales[1]);
          out[3] = merged(before[n].w, out[3], scales[1]);
        }
      }
    }
  }

 private:
  __device__ float4* row_block_pieces(int row_block) const {
    const int cta = static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x);
    return accumulators_ + (int64_t{cta} * kRowBlocks + row_block) * kPieces * kThreads + ptx::tid_x();
  }

  float4* accumulators_;
};

}  // namespace attend::kernels::cuda::sm80
