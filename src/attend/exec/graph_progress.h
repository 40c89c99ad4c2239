// Progress of an executor while it records CUDA graphs.
#pragma once

#include <cstddef>
#include <functional>

#pragma GCC visibility push(default)
namespace attend {

// CUDA graphs of decode steps while they are recorded, the largest batch size first.
struct GraphProgressInfo {
  int batch_size;  // in hand; once all are done the last one
  int num_done;    // of num_sizes
  int num_sizes;
  size_t num_bytes;  // of device memory that those which are done take
};

using GraphProgress = std::function<void(const GraphProgressInfo&)>;

}  // namespace attend
#pragma GCC visibility pop
