// Counts heap allocations, to prove that a step makes none: operator new, and what tensors ask the C library
// for. An executable that links count_allocations.cc has these replaced.
#pragma once

#include <cstdint>

namespace attend::testing_support {

// Allocations in this process so far, of any thread, and their bytes.
int64_t num_allocations();
int64_t allocated_bytes();

}  // namespace attend::testing_support
