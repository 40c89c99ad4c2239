// Which CTA of a work tile is the last to leave its partial result: it merges them all.
#pragma once

#include "attend/kernels/common/cuda/ptx/atomic.cuh"

namespace attend::kernels::cuda {

// The threads of a CTA that merge: all.
struct AllThreads {
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static void sync() { __syncthreads(); }
};

// Counts `num_new` partial results of a work tile that this CTA has written. Whether they were the last of
// `num_partials`. All threads of the team call it; all get the answer.
template <class Team = AllThreads>
__device__ bool complete_partials(int32_t* num_done, int num_new, int num_partials) {
  __shared__ bool last;
  Team::sync();
  if (Team::thread() == 0) {
    last = ptx::atom_add_acq_rel(num_done, num_new) + num_new == num_partials;
    // For the next launch.
    if (last) *num_done = 0;
  }
  Team::sync();
  return last;
}

}  // namespace attend::kernels::cuda
