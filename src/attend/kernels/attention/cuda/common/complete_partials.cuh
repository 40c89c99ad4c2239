// Finds the CTA of a work tile that is the last to write its partial result: it merges all of them.
#pragma once

#include "attend/kernels/common/cuda/ptx/atomic.cuh"

namespace attend::kernels::cuda {

// Team of threads that merge: all threads of the CTA.
struct AllThreads {
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static void sync() { __syncthreads(); }
};

// Counts `num_new` partial results of a work tile that this CTA has written. Returns true to all threads if
// they were the last of `num_partials`. Called by all threads of the team.
template <class Team = AllThreads>
__device__ bool complete_partials(int32_t* num_done, int num_new, int num_partials) {
  __shared__ bool last;
  Team::sync();
  if (Team::thread() == 0) {
    last = ptx::atom_add_acq_rel(num_done, num_new) + num_new == num_partials;
    // Resets the counter for the next launch.
    if (last) *num_done = 0;
  }
  Team::sync();
  return last;
}

}  // namespace attend::kernels::cuda
