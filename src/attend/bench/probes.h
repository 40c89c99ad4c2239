// Probes: what a machine can do at most, measured. Reading memory, and multiplying and accumulating with each
// instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/tensor/dtype.h"

namespace attend::bench {

// A way to read memory. Which is the fastest depends on the machine, on its load and on the size of its
// pages, so whoever asks for a limit tries all of them.
struct ReadMethod {
  int num_streams = 1;     // of a thread, 1, 2 or 4: each reads its part of the memory in order
  size_t ahead = 0;        // bytes that a prefetch is ahead of the loads; 0: left to the hardware
  size_t chunk_bytes = 0;  // threads take parts of so many bytes by turns; 0: one contiguous part each
  bool once = false;       // prefetches say that nobody reads the lines again
};
std::span<const ReadMethod> read_methods();
// "2 streams, fetched 2 KiB ahead, by turns of 256 KiB"
std::string to_string(const ReadMethod& way);

// Reads every byte of `memory` once and gives bytes per second. num_threads is at most the size of the thread
// team.
double read_bytes_per_second(std::span<const std::byte> memory, int num_threads, const ReadMethod& way = {});

// The way whose rates have the highest median, and that median: `rates_by_method` holds what each of
// read_methods() reached, any number of times.
struct FastestReadMethod {
  size_t way = 0;
  double rate = 0;
};
FastestReadMethod fastest_read_method(std::span<const std::vector<double>> rates_by_method);

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

// The fastest of them that multiplies vectors, so not AMX, whose operands hold numbers of `operands`: pairs
// of bfloat16 are for bfloat16 and fp8 alone.
Arithmetic best_vectors(int num_threads, DType operands);

}  // namespace attend::bench
