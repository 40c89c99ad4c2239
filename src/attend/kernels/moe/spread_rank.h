// spread_rank(): order of a token's experts under RouterRule::spread, on either device.
#pragma once

#include <cstdint>

#include "attend/kernels/common/host_device.h"

namespace attend::kernels {

// Rank of an expert for the token at an index of the call: a hash, so that tokens and layers select evenly
// and independently. 0 to 2^24 - 1.
ATTEND_HOST_DEVICE inline float spread_rank(uint32_t spread, uint32_t token, uint32_t expert) {
  uint32_t hash = spread * 0x9e3779b9u ^ token * 0x85ebca6bu ^ expert * 0xc2b2ae35u;
  for (int i = 0; i < 2; ++i) {
    hash = (hash ^ hash >> 16) * 0x7feb352du;
    hash = (hash ^ hash >> 15) * 0x846ca68bu;
  }
  return static_cast<float>((hash ^ hash >> 16) >> 8);
}

}  // namespace attend::kernels
