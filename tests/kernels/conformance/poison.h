// What tests put where nothing may be read, so that reading it shows.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "attend/tensor/tensor.h"

namespace attend::conformance {

// As a page id or a slot it lies far beyond every pool.
inline constexpr int32_t kHugeId = 0x7fffff00;

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Bytes of results before a kernel runs: a NaN of every float dtype, and no kernel writes just this one.
inline constexpr unsigned char kUnwritten = 0xff;

inline void poison_results(const Tensor& storage) {
  if (!storage.view().empty()) std::memset(storage.view().data, kUnwritten, storage.view().num_bytes());
}

}  // namespace attend::conformance
