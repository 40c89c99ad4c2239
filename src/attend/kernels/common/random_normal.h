// RandomNormal: a sequence of random numbers in which each can be computed by itself, to the same bits on
// every device. Light and plain, so that device code includes it as it is.
#pragma once

#include <cstdint>

#include "attend/kernels/common/host_device.h"

namespace attend::kernels {

// A well-mixed hash of a counter (splitmix64's finalizer, https://prng.di.unimi.it/splitmix64.c).
ATTEND_HOST_DEVICE inline uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Element i is number first + i of the one sequence there is: about N(mean, deviation^2).
struct RandomNormal {
  uint64_t first = 0;
  float mean = 0.0f, deviation = 1.0f;

  // The sum of four uniform 16-bit numbers, centered and scaled by its deviation (Irwin-Hall, variance 4/12).
  // No logarithm, so that weights of many gigabytes take seconds.
  ATTEND_HOST_DEVICE float at(int64_t i) const {
    const uint64_t bits = mixed(first + static_cast<uint64_t>(i));
    const auto sum =
        static_cast<int32_t>((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
    constexpr float kScale = 1.7320508f / 65536.0f;
    return mean + deviation * (static_cast<float>(sum - 2 * 65535) * kScale);
  }
};

}  // namespace attend::kernels
