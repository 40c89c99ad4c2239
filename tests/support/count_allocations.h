// Counts heap allocations, to prove that a step makes none. An executable that links count_allocations.cc has
// its operator new replaced.
#pragma once

#include <cstdint>

namespace attend::testing_support {

// Calls of operator new in this process so far, of any thread.
int64_t num_allocations();

}  // namespace attend::testing_support
