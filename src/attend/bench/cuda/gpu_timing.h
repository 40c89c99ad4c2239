// Timing of GPU work.
#pragma once

#include <functional>

#include "attend/tensor/cuda.h"

namespace attend::bench {

// The median over rounds of the time of one of `repeats` calls that a graph holds, in microseconds. queue(i)
// queues call i.
double time_graph(Stream& stream, int repeats, const std::function<void(int)>& queue);

}  // namespace attend::bench
