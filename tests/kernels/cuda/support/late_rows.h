// Slow kernel before attention. It releases the dependent launch at its start, and writes rows of q and new
// keys much later.
#pragma once

#include <cstdint>

namespace attend::testing_cuda {

struct LateRow {
  void* to;
  const void* from;
  int64_t num_bytes;
};

// Waits for the preceding launch, releases the next one, and copies the rows after `nanoseconds`. `rows` is
// in GPU memory. `stream` is a cudaStream_t.
void launch_late_rows(const LateRow* rows, int num_rows, int64_t nanoseconds, void* stream);

}  // namespace attend::testing_cuda
