// What tests put where nothing may be read, so that reading it shows.
#pragma once

#include <cstdint>
#include <cstring>

#include "attend/tensor/tensor.h"

namespace attend::conformance {

// As a page id or a slot it lies far beyond every pool.
inline constexpr int32_t kHugeId = 0x7fffff00;

// Byte by byte a NaN of every float dtype, and of all NaNs the one that no kernel computes.
inline constexpr unsigned char kPoisonByte = 0xff;

inline void poison(const Tensor& storage) {
  if (!storage.view().empty()) std::memset(storage.view().data, kPoisonByte, storage.view().num_bytes());
}

}  // namespace attend::conformance
