// Poison for memory that must not be read, so that reads are detected.
#pragma once

#include <cstdint>
#include <cstring>

#include "attend/tensor/tensor.h"

namespace attend::conformance {

// As a page id or slot it is far beyond every pool.
inline constexpr int32_t kHugeId = 0x7fffff00;

// Every repetition is a NaN of every float dtype, and a NaN that no kernel computes.
inline constexpr unsigned char kPoisonByte = 0xff;

inline void poison(const Tensor& storage) {
  if (!storage.view().empty()) std::memset(storage.view().data, kPoisonByte, storage.view().num_bytes());
}

}  // namespace attend::conformance
