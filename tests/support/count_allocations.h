// Counts heap allocations by operator new and by tensors, to prove that a step makes none. An executable that
// links count_allocations.cc uses its operators.
#pragma once

#include <cstdint>

namespace attend::testing_support {

// Number and bytes of all allocations of this process.
int64_t num_allocations();
int64_t allocated_bytes();

// Allocations of operator new that were not freed.
int64_t num_live_allocations();

// Makes one call of operator new on the calling thread fail: the call after `num_good` further ones throws
// std::bad_alloc unless the program's new_handler frees memory. Later calls succeed. A negative number
// disables this.
void fail_one_allocation_after(int64_t num_good);
// Returns true if that call has failed.
bool allocation_has_failed();

}  // namespace attend::testing_support
