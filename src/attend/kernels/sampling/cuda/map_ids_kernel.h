// Kernel of map_ids().
#pragma once

#include <cstdint>

namespace attend::kernels::cuda {

struct MapIdsParams {
  const int32_t* table;
  int32_t* ids;  // [num_ids]
  int32_t num_ids;
};

void launch_map_ids(const MapIdsParams& params, void* stream);

}  // namespace attend::kernels::cuda
