// Choosing tokens, on the device.
#pragma once

#include "attend/kernels/sampling/sampling.h"

namespace attend::kernels::cuda {

struct SamplingParams {
  const float* logits;  // row r begins at r * row_stride
  int64_t row_stride;
  const SamplingRule* rules;  // [num_rows]; null: all greedy
  int32_t* ids;               // [num_rows]; kNoToken: the row is all NaN
  int32_t num_rows, vocab_size;
  // Instead of ids: row r of what is drawn from begins at r * probability_stride; null: ids are wanted.
  float* probabilities = nullptr;
  int64_t probability_stride = 0;
  // A row is eight slices of so many elements; its CTAs may keep theirs in shared memory, of which they have
  // `room_size` floats. launch_sampling() says.
  int32_t slice_size = 0;
  bool keeps_part = false;
  int32_t room_size = 0;
};

// A cluster of CTAs per row where rows are few; a row's bits do not depend on how many. `stream` is a
// cudaStream_t. Throws Error(kDevice) when the launch fails.
void launch_sampling(SamplingParams params, void* stream);

}  // namespace attend::kernels::cuda
