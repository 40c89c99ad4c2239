// Random data: reads and products of zeros are faster than those of what models hold.
#pragma once

#include <cstdint>

namespace attend::bench {

// Fills `count` bf16 elements (a multiple of 8) with values spread evenly over (-range, range). `stream` is a
// cudaStream_t.
void launch_fill_random(void* data, int64_t count, float range, void* stream);

}  // namespace attend::bench
