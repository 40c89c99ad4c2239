// One request of a StepBatch.
#pragma once

#include "attend/kernels/recurrent/cuda/common/step_batch.h"

namespace attend::kernels::cuda {

struct StepRequest {
  int begin, end;   // its tokens
  int row, load;    // state slots; row 0: padding; load 0: the state before the step is zero
  int seqlen_kv;    // including the step's tokens
  int num_padding;  // tokens after `end` that belong to no request

  __device__ int seqlen_q() const { return end - begin; }
};

__device__ inline StepRequest step_request(const StepBatch& batch, int r) {
  StepRequest request;
  request.begin = batch.cu_seqlen_q[r];
  request.end = batch.cu_seqlen_q[r + 1];
  request.row = batch.rows[r];
  request.seqlen_kv = batch.seqlen_kv[r];
  const int other = batch.load_slots == nullptr ? 0 : batch.load_slots[r];
  request.load = request.seqlen_kv == request.seqlen_q() ? 0 : other == 0 ? request.row : other;
  request.num_padding = r + 1 == batch.num_reqs ? batch.num_tokens - request.end : 0;
  return request;
}

}  // namespace attend::kernels::cuda
