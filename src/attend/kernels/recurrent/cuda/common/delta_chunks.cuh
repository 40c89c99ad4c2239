// Chunks of a step in the chunk form: kDeltaChunk adjacent positions of a request, counted from its position
// 0, of which the first and the last chunk may have fewer tokens.
#pragma once

#include "attend/kernels/recurrent/cuda/common/delta_chunk_layout.h"
#include "attend/kernels/recurrent/cuda/common/step_request.cuh"

namespace attend::kernels::cuda {

// Returns the number of chunks of a request, or 0 if its tokens are single steps: so few tokens that chunks
// would be slower, or would need more workspace than kDeltaTokensPerSlot allows.
__device__ inline int num_delta_chunks(const StepRequest& request) {
  const int seqlen_q = request.seqlen_q();
  if (request.row == 0 || seqlen_q < kDeltaTokensPerSlot) return 0;
  const int first = (request.seqlen_kv - seqlen_q) / kDeltaChunk;
  const int chunks = (request.seqlen_kv - 1) / kDeltaChunk - first + 1;
  return chunks * kDeltaTokensPerSlot <= seqlen_q ? chunks : 0;
}

__device__ inline int warp_sum_of(int value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

// Returns the workspace slot of the first chunk of request r. Called by whole warps.
__device__ inline int first_delta_slot(const StepBatch& batch, int r) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int sum = 0;
  for (int base = 0; base < r; base += 32)
    sum += base + lane < r ? num_delta_chunks(step_request(batch, base + lane)) : 0;
  return warp_sum_of(sum);
}

struct DeltaChunkIndex {
  int request, chunk;  // request -1: the slot has no chunk
};

// Returns the chunk of a workspace slot. Called by whole warps.
__device__ inline DeltaChunkIndex find_delta_chunk(const StepBatch& batch, int slot) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int before = 0;
  for (int base = 0; base < batch.num_reqs; base += 32) {
    const int chunks = base + lane < batch.num_reqs ? num_delta_chunks(step_request(batch, base + lane)) : 0;
    int end = chunks;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, end, step);
      if (lane >= step) end += other;
    }
    const unsigned after = __ballot_sync(0xffffffffu, before + end > slot);
    if (after != 0) {
      const int owner = __ffs(static_cast<int>(after)) - 1;
      const int begin = before + __shfl_sync(0xffffffffu, end - chunks, owner);
      return {base + owner, slot - begin};
    }
    before += __shfl_sync(0xffffffffu, end, 31);
  }
  return {-1, 0};
}

// Tokens of one chunk. Row i of the chunk is token `first + i`, if that is one of [begin, end).
struct DeltaChunk {
  int first, begin, end;

  __device__ bool has(int i) const { return first + i >= begin && first + i < end; }
};

__device__ inline DeltaChunk delta_chunk(const StepRequest& request, int chunk) {
  const int first_position = request.seqlen_kv - request.seqlen_q();
  const int position = (first_position / kDeltaChunk + chunk) * kDeltaChunk;
  return {request.begin + position - first_position, request.begin, request.end};
}

}  // namespace attend::kernels::cuda
