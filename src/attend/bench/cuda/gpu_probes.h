// What a GPU is, and what its memory gives at most, measured.
#pragma once

#include <string>

#include "attend/tensor/cuda.h"

namespace attend::bench {

struct GpuFacts {
  int sm_clock, memory_clock;     // the highest, MHz
  std::string driver;             // "580.65.06"; "unknown" where the system does not tell
  std::string driver_cuda, cuda;  // the newest CUDA that the driver runs, and the one built with: "13.0"
};
// Throws Error(kUnsupported) in a build without CUDA, as fastest_read().
GpuFacts gpu_facts(Device device);

// The fastest read of device memory seen, of random data, in bytes per microsecond.
double fastest_read(Stream& stream);

}  // namespace attend::bench
