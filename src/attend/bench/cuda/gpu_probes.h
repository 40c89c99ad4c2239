// What a GPU is, and what its memory gives at most, measured.
#pragma once

#include <cstddef>
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

// Reads `num_bytes` (a multiple of 16) once, with `num_ctas` CTAs; `sink` (one float on the device) keeps the
// compiler from leaving it out. `stream` is a cudaStream_t. In a build with CUDA alone.
void launch_read(const void* data, size_t num_bytes, float* sink, int num_ctas, void* stream);

// The fastest read of device memory seen, of random data, in bytes per microsecond.
double fastest_read(Stream& stream);

}  // namespace attend::bench
