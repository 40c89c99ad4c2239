// A kernel that stands before attention as a model's own do, made slow: it lets attention start and writes
// rows of q and new keys long after.
#pragma once

#include <cstdint>

namespace attend::testing_cuda {

struct LateRow {
  void* to;
  const void* from;
  int64_t num_bytes;
};

// Waits for the launch before it, lets the next one start, and copies the rows `nanoseconds` later. `rows`
// lie on the GPU. `stream` is a cudaStream_t.
void launch_late_rows(const LateRow* rows, int num_rows, int64_t nanoseconds, void* stream);

}  // namespace attend::testing_cuda
