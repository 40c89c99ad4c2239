// Timing of repeated runs on CPUs and GPUs.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <vector>

#include "attend/tensor/cuda.h"

namespace attend::bench {

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Fn>
double measure_seconds(const Fn& fn) {
  const double start = seconds_now();
  fn();
  return seconds_now() - start;
}

// Returns 0 if empty.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns 0 if empty.
inline double mean(const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// Returns the time of one call in microseconds: the median over rounds of a graph with `repeats` calls.
// queue(i) queues call i.
double time_graph(Stream& stream, int repeats, const std::function<void(int)>& queue);

}  // namespace attend::bench
