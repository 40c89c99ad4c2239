// Timing of GPU work, and the limit it is held against.
#pragma once

#include <functional>

#include "attend/tensor/cuda.h"

namespace attend::bench {

// The median over rounds of the time of one of `repeats` calls that a graph holds, in microseconds. queue(i)
// queues call i.
double time_graph(Stream& stream, int repeats, const std::function<void(int)>& queue);

// The highest clocks of the GPU, in MHz, and the versions of the driver and of the runtime (13000: 13.0).
struct GpuFacts {
  int sm_clock, memory_clock, driver_version, runtime_version;
};
GpuFacts gpu_facts(Device device);

// The fastest read of device memory seen, in bytes per microsecond.
double fastest_read(Stream& stream);

}  // namespace attend::bench
