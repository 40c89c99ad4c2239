// Probes: what a machine can do at most, measured. Reading memory, and multiplying and accumulating with each
// instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attend::bench {

// Reads every byte of `memory` once, each of `num_threads` threads one contiguous part, and gives bytes per
// second. num_threads is at most the size of the thread team.
double read_bytes_per_second(std::span<const std::byte> memory, int num_threads);

enum class Arithmetic : uint8_t {
  kPortableF32,  // what the compiler makes of a loop for its baseline
  kAvx2F32,
  kAvx512F32,
  kAvx512Bf16,  // vdpbf16ps
  kAmxBf16,     // tdpbf16ps: tiles of 16 x 16 sums
};

// "portable f32", "avx2 f32", "avx512 f32", "avx512 bf16", "amx bf16"
std::string_view to_string(Arithmetic arithmetic);

// Those that this machine runs. A process that asks the first time for kAmxBf16 asks the kernel for
// permission.
std::vector<Arithmetic> available_arithmetic();

// Operations (a product and a sum are two) per second that `num_threads` threads reach with all operands in
// registers.
double operations_per_second(Arithmetic arithmetic, int num_threads);

// The fastest of them that multiplies vectors, so not AMX.
Arithmetic best_vectors(int num_threads);

}  // namespace attend::bench
