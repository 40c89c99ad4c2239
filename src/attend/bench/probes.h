// Probes: measured limits of a machine. Memory bandwidth, and multiply-accumulate throughput per instruction
// set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/tensor/dtype.h"

namespace attend::bench {

// Method of reading memory. The fastest one depends on the machine, its load and its page size, so a caller
// that needs the limit tries all of them.
struct ReadMethod {
  int num_streams = 1;     // per thread, 1, 2 or 4: each reads its part of the memory in order
  size_t ahead = 0;        // distance of prefetches ahead of the loads in bytes; 0: hardware prefetch only
  size_t chunk_bytes = 0;  // threads alternate in parts of this size; 0: one contiguous part per thread
  bool once = false;       // prefetches with a non-temporal hint
};
std::span<const ReadMethod> read_methods();
// Returns, for example, "2 streams, fetched 2 KiB ahead, interleaved by 256 KiB".
std::string to_string(const ReadMethod& way);

// Reads every byte of `memory` once and returns bytes per second. num_threads is at most the size of the
// thread team.
double read_bytes_per_second(std::span<const std::byte> memory, int num_threads, const ReadMethod& way = {});

// Method with the highest median rate, and that median. `rates_by_method`: measured rates of each of
// read_methods(), any number per method.
struct FastestReadMethod {
  size_t way = 0;
  double rate = 0;
};
FastestReadMethod fastest_read_method(std::span<const std::vector<double>> rates_by_method);

enum class Arithmetic : uint8_t {
  kPortableF32,  // the compiler's baseline code of a loop
  kAvx2F32,
  kAvx512F32,
  kAvx512Bf16,  // vdpbf16ps
  kAmxBf16,     // tdpbf16ps: tiles of 16 x 16 accumulators
};

// Returns "portable f32", "avx2 f32", "avx512 f32", "avx512 bf16" or "amx bf16".
std::string_view to_string(Arithmetic arithmetic);

// Returns the arithmetic that this machine supports. The first call that checks kAmxBf16 requests permission
// from the operating system.
std::vector<Arithmetic> available_arithmetic();

// Returns the operations (multiplication and addition count as two) per second of `num_threads` threads with
// all operands in registers.
double operations_per_second(Arithmetic arithmetic, int num_threads);

// Returns the fastest vector arithmetic (not AMX) for operands of dtype `operands`. Pairs of bfloat16 apply
// to bfloat16 and fp8 only.
Arithmetic best_vectors(int num_threads, DType operands);

}  // namespace attend::bench
