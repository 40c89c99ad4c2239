// RandomNormal: a sequence of random values in which each can be computed independently, with the same bits
// on every device. A plain header that device code can include.
#pragma once

#include <cstdint>

#include "attend/kernels/common/host_device.h"

namespace attend::kernels {

// Hash of a counter (splitmix64's finalizer, https://prng.di.unimi.it/splitmix64.c).
ATTEND_HOST_DEVICE inline uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Element i is value first + i of a fixed sequence, approximately N(mean, deviation^2).
struct RandomNormal {
  uint64_t first = 0;
  float mean = 0.0f, deviation = 1.0f;

  // Returns the sum of four uniform 16-bit values, centered and scaled by its standard deviation (Irwin-Hall,
  // variance 4/12). It needs no logarithm, so that weights of many gigabytes take only seconds.
  ATTEND_HOST_DEVICE float at(int64_t i) const {
    const uint64_t bits = mixed(first + static_cast<uint64_t>(i));
    const auto sum =
        static_cast<int32_t>((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
    constexpr float kScale = 1.7320508f / 65536.0f;
    return mean + deviation * (static_cast<float>(sum - 2 * 65535) * kScale);
  }
};

}  // namespace attend::kernels
