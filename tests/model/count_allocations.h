// Counts calls of operator new in this program, so that a test can assert that there were none.
#pragma once

namespace attend::test {

int num_allocations();

}  // namespace attend::test
