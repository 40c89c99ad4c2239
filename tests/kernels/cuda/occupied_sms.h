// A kernel that leaves attention only a part of the GPU.
#pragma once

#include <cstdint>

namespace attend::testing_cuda {

// Has `num_sms` SMs for so long, with most of their shared memory. `stream` is a cudaStream_t.
void launch_occupied_sms(int num_sms, int64_t nanoseconds, void* stream);

}  // namespace attend::testing_cuda
