// Counts heap allocations, to prove that a step makes none: operator new, and what tensors ask the C library
// for. An executable that links count_allocations.cc has these replaced.
#pragma once

#include <cstdint>

namespace attend::testing_support {

// Allocations in this process so far, of any thread, and their bytes.
int64_t num_allocations();
int64_t allocated_bytes();

// Those of operator new that were not given back.
int64_t num_live_allocations();

// From now on, of the calling thread's calls of operator new, the one after `num_good` others throws
// std::bad_alloc, unless the program's new_handler finds memory; those after it are good again. A negative
// number: none.
void fail_one_allocation_after(int64_t num_good);
// Whether it has.
bool allocation_has_failed();

}  // namespace attend::testing_support
