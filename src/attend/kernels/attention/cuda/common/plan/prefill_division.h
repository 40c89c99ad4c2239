// Whether prefill's CTAs take whole work tiles or divide the keys of all: what plans and the choice of a
// kernel agree on.
#pragma once

#include <cstdint>

namespace attend::kernels::cuda {

// Work tiles of one request are about equally long. So of those wanted 1 in kMissingWorkTiles may be missing
// before dividing their keys, which costs a CTA a second start and a merge, is faster. 0: none may.
inline constexpr int64_t kMissingWorkTiles = 10;

// `wanted`: work tiles that do for requests of any lengths.
constexpr bool takes_whole_work_tiles(int64_t num_work_tiles, int64_t num_reqs, int64_t wanted) {
  const int64_t missing = num_reqs == 1 && kMissingWorkTiles > 0 ? wanted / kMissingWorkTiles : 0;
  return num_work_tiles >= wanted - missing;
}

}  // namespace attend::kernels::cuda
