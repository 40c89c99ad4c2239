// Properties of a GPU and its measured memory bandwidth.
#pragma once

#include <cstddef>
#include <string>

#include "attend/tensor/cuda.h"

namespace attend::bench {

struct GpuFacts {
  int sm_clock, memory_clock;     // maximum, MHz
  std::string driver;             // "580.65.06"; "unknown" if the system does not report it
  std::string driver_cuda, cuda;  // newest CUDA that the driver supports, and the version of this build:
                                  // "13.0"
};
// Throws Error(kUnsupported) in a build without CUDA, like fastest_read().
GpuFacts gpu_facts(Device device);

// Reads `num_bytes` (a multiple of 16) once, with `num_ctas` CTAs. `sink` (one float on the device) prevents
// the compiler from removing the reads. `stream` is a cudaStream_t. Available only in builds with CUDA.
void launch_read(const void* data, size_t num_bytes, float* sink, int num_ctas, void* stream);

// Returns the fastest measured read of random data from device memory, in bytes per microsecond.
double fastest_read(Stream& stream);

}  // namespace attend::bench
