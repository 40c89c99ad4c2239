// Progress of an executor while it records CUDA graphs.
#pragma once

#include <cstddef>
#include <functional>

#pragma GCC visibility push(default)
namespace attend {

// Progress of recording CUDA graphs of decode steps. The largest batch size is recorded first.
struct GraphProgressInfo {
  int batch_size;  // being recorded; after the end the last one
  int num_done;    // finished sizes, out of num_sizes
  int num_sizes;
  size_t num_bytes;  // device memory of the finished graphs
};

using GraphProgress = std::function<void(const GraphProgressInfo&)>;

}  // namespace attend
#pragma GCC visibility pop
