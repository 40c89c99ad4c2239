// Kernels of token sampling.
#pragma once

#include "attend/kernels/sampling/sampling.h"

namespace attend::kernels::cuda {

struct SamplingParams {
  const float* logits;  // row r starts at r * row_stride
  int64_t row_stride;
  const SamplingRule* rules;  // [num_rows]; null: all greedy
  int32_t* ids;               // [num_rows]; kNoToken: the row is all NaN
  int32_t num_rows, vocab_size;
  // If not null, outputs are the filtered probabilities instead of ids: row r starts at r *
  // probability_stride.
  float* probabilities = nullptr;
  int64_t probability_stride = 0;
  // A row has eight slices of `slice_size` elements. CTAs may keep theirs in shared memory, of which they
  // have `room_size` floats. Set by launch_sampling().
  int32_t slice_size = 0;
  bool keeps_part = false;
  int32_t room_size = 0;
};

// Launches a cluster of CTAs per row if rows are few; a row's bits do not depend on the cluster size.
// `stream` is a cudaStream_t. Throws Error(kDevice) if the launch fails.
void launch_sampling(SamplingParams params, void* stream);

}  // namespace attend::kernels::cuda
