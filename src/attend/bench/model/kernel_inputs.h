// Inputs of kernels that a bench times separately from their model.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend::bench {

// Calls per graph, so that a round needs some milliseconds.
constexpr int kCallsPerGraph = 4;

// Returns normally distributed values of this standard deviation on the stream's GPU.
Tensor random_input(std::initializer_list<int64_t> shape, DType dtype, float deviation, Stream& stream);

Tensor upload_input(const std::vector<int32_t>& values, Device device);

}  // namespace attend::bench
