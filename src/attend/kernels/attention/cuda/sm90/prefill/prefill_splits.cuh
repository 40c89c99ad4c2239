// Fixed splits in prefill on sm_90a (prefill.cuh): merged in the order of the keys, as sm80's kernel does.
#pragma once

#include "attend/kernels/attention/cuda/common/row_state.cuh"

namespace attend::kernels::cuda::sm90 {

// Fixed splits: what a thread has of its rows over the splits that have ended, beside those of the present
// one.
template <class Rows>
class PrefillSplits {
  static constexpr int kPieces = Rows::kColumns / 8, kStride = 128;

 public:
  // `out`: this thread's place of the splits in shared memory.
  __device__ __forceinline__ PrefillSplits(float4* out, int first_key, int keys_of_split)
      : out_(out), end_((first_key / keys_of_split + 1) * keys_of_split) {}

  // Before the scores of the KV tile from `first_key` on: whether a new split begins with them.
  __device__ __forceinline__ bool ends_before(int first_key, int keys_of_split, Rows& rows) {
    if (first_key < end_) return false;
    end_ += keys_of_split;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      ended_max_[half] = rows.row_max[half];
      ended_sum_[half] = rows.row_sum[half];
      rows.row_max[half] = -INFINITY;
      rows.row_sum[half] = 0.0f;
    }
    return true;
  }

  // After that, when all of the ended split's P V is in rows.out, which becomes zero.
  __device__ __forceinline__ void add_ended(Rows& rows, float softmax_scale_log2) {
#pragma unroll
    for (float& sum : ended_sum_) sum = quad_sum(sum);
    merge(ended_max_, ended_sum_, rows.out, softmax_scale_log2);
#pragma unroll
    for (int n = 0; n < kPieces; ++n)
      out_[n * kStride] =
          make_float4(rows.out[4 * n], rows.out[4 * n + 1], rows.out[4 * n + 2], rows.out[4 * n + 3]);
    is_empty_ = false;
#pragma unroll
    for (float& x : rows.out) x = 0.0f;
  }

  // The last split, after its finish_sums(): rows become those of all splits.
  __device__ __forceinline__ void finish(Rows& rows, float softmax_scale_log2) {
    merge(rows.row_max, rows.row_sum, rows.out, softmax_scale_log2);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.row_max[half] = row_max_[half];
      rows.row_sum[half] = row_sum_[half];
    }
  }

 private:
  // The splits so far come first. `out`: of the split that is added, then of all.
  __device__ __forceinline__ void merge(const float (&partial_max)[2], const float (&partial_sum)[2],
                                        float (&out)[Rows::kColumns / 2], float softmax_scale_log2) {
    if (is_empty_) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        row_max_[half] = partial_max[half];
        row_sum_[half] = partial_sum[half];
      }
      return;
    }
    MergeScales scales[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float new_max = fmaxf(row_max_[half], partial_max[half]);
      scales[half] = merge_scales(row_max_[half], partial_max[half], new_max, softmax_scale_log2);
      row_max_[half] = new_max;
      row_sum_[half] = merged(row_sum_[half], partial_sum[half], scales[half]);
    }
#pragma unroll
    for (int n = 0; n < kPieces; ++n) {
      const float4 before = out_[n * kStride];
      out[4 * n] = merged(before.x, out[4 * n], scales[0]);
      out[4 * n + 1] = merged(before.y, out[4 * n + 1], scales[0]);
      out[4 * n + 2] = merged(before.z, out[4 * n + 2], scales[1]);
      out[4 * n + 3] = merged(before.w, out[4 * n + 3], scales[1]);
    }
  }

  float4* const out_;
  float row_max_[2], row_sum_[2];
  // Of the split that ends, whose P V may still be under way.
  float ended_max_[2], ended_sum_[2];
  bool is_empty_ = true;
  int end_;  // of the present split: the first key of the next
};
struct NoPrefillSplits {
  __device__ NoPrefillSplits(float4*, int, int) {}
};

}  // namespace attend::kernels::cuda::sm90
