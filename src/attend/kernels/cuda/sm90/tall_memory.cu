#include <algorithm>

#include "attend/kernels/cuda/sm90/tall_ring.cuh"

namespace attend::kernels::cuda::sm90 {

int tall_shared_bytes(const TallParams& params, int token_groups) {
  // Warpgroups read all of their 64 rows of x, though a slot may hold fewer.
  const int last_read =
      (params.token_slots - 1) * token_slot_bytes(params) + token_groups * kGroupTokens * kRowBytes;
  return std::max(rings_bytes(params) + norm_bytes(params) + kTallBarrierBytes, last_read);
}

}  // namespace attend::kernels::cuda::sm90
