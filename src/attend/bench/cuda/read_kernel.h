// Reading memory as fast as it goes: the limit that decode is measured against.
#pragma once

#include <cstddef>

namespace attend::bench {

// Reads `num_bytes` (a multiple of 16) once; `sink` (one float on the device) keeps the compiler from leaving
// it out. `stream` is a cudaStream_t.
void launch_read(const void* data, size_t num_bytes, float* sink, int num_ctas, void* stream);

}  // namespace attend::bench
