// Loops of the probes, each compiled for the instruction set that it measures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "attend/bench/probes.h"

namespace attend::bench {

// Sizes for read_loop are multiples of it.
inline constexpr size_t kReadUnit = 4096;

// Reads every byte with one thread. The result depends on all of them.
float read_loop(std::span<const std::byte> memory, const ReadMethod& way);

struct PeakLoop {
  float (*run)(int64_t num_steps);  // the result depends on every operation
  double operations_per_step;
};
PeakLoop peak_loop(Arithmetic arithmetic);

}  // namespace attend::bench
