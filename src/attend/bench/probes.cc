#include "attend/bench/probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/bench/peak_loops.h"
#include "attend/bench/timing.h"
#include "attend/kernels/common/cpu/isa.h"

namespace attend::bench {
namespace {

using kernels::cpu::Isa;

// Stores results of probes, so that the compiler cannot remove their computation.
std::atomic<float> sink = 0;

// Long enough that the time of waking a thread is negligible.
constexpr int64_t kPeakSteps = 400'000;

constexpr size_t kChunkBytes = 256 << 10;
constexpr ReadMethod kReadMethods[] = {
    {},
    {.chunk_bytes = kChunkBytes},
    {.ahead = 8192},
    {.ahead = 8192, .chunk_bytes = kChunkBytes},
    {.ahead = 4096, .chunk_bytes = kChunkBytes, .once = true},
    {.num_streams = 2, .ahead = 2048},
    {.num_streams = 2, .ahead = 2048, .chunk_bytes = kChunkBytes},
    {.num_streams = 2, .ahead = 2048, .chunk_bytes = 2 * kChunkBytes, .once = true},
    {.num_streams = 4, .ahead = 1024},
    {.num_streams = 4, .ahead = 1024, .chunk_bytes = 4 * kChunkBytes}};

}  // namespace

std::span<const ReadMethod> read_methods() { return kReadMethods; }

double read_bytes_per_second(std::span<const std::byte> memory, int num_threads, const ReadMethod& way) {
  // A tiny model has less than a unit per thread.
  num_threads =
      static_cast<int>(std::min<size_t>(static_cast<size_t>(num_threads), memory.size() / kReadUnit));
  ensure(num_threads > 0, "read probe: ", memory.size(), " bytes");
  const size_t fair = memory.size() / static_cast<size_t>(num_threads) / kReadUnit * kReadUnit;
  const bool interleaved = way.chunk_bytes > 0;
  const size_t share = interleaved ? std::min(fair, way.chunk_bytes) : fair;
  const auto num_shares =
      static_cast<int64_t>(interleaved ? memory.size() / share : static_cast<size_t>(num_threads));
  const double seconds = measure_seconds([&] {
    // One task per thread, independent of the team's size.
    std::atomic<int64_t> next = 0;
    parallel_for(num_threads, [&](int64_t, int) {
      for (int64_t part = next++; part < num_shares; part = next++)
        sink = read_loop(memory.subspan(static_cast<size_t>(part) * share, share), way);
    });
  });
  return static_cast<double>(share) * static_cast<double>(num_shares) / seconds;
}

std::string to_string(const ReadMethod& way) {
  std::string text = fmt::format("{} stream{}", way.num_streams, way.num_streams == 1 ? "" : "s");
  if (way.ahead > 0)
    text += fmt::format(", fetched {} KiB ahead{}", way.ahead >> 10, way.once ? " without reuse" : "");
  if (way.chunk_bytes > 0) text += fmt::format(", interleaved by {} KiB", way.chunk_bytes >> 10);
  return text;
}

FastestReadMethod fastest_read_method(std::span<const std::vector<double>> rates_by_method) {
  FastestReadMethod fastest;
  for (size_t way = 0; way < rates_by_method.size(); ++way) {
    if (rates_by_method[way].empty()) continue;
    const double rate = median(rates_by_method[way]);
    if (rate > fastest.rate) fastest = {way, rate};
  }
  return fastest;
}

std::string_view to_string(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kPortableF32:
      return "portable f32";
    case Arithmetic::kAvx2F32:
      return "avx2 f32";
    case Arithmetic::kAvx512F32:
      return "avx512 f32";
    case Arithmetic::kAvx512Bf16:
      return "avx512 bf16";
    case Arithmetic::kAmxBf16:
      return "amx bf16";
  }
  return "unknown";
}

std::vector<Arithmetic> available_arithmetic() {
  const Isa isa = kernels::cpu::detect_isa();
  std::vector<Arithmetic> available;
  if (isa == Isa::kPortable) available.push_back(Arithmetic::kPortableF32);
  if (isa >= Isa::kAvx2) available.push_back(Arithmetic::kAvx2F32);
  if (isa >= Isa::kAvx512) available.push_back(Arithmetic::kAvx512F32);
  if (isa >= Isa::kAvx512Bf16) available.push_back(Arithmetic::kAvx512Bf16);
  if (isa >= Isa::kAmx) available.push_back(Arithmetic::kAmxBf16);
  return available;
}

double operations_per_second(Arithmetic arithmetic, int num_threads) {
  const PeakLoop loop = peak_loop(arithmetic);
  const double seconds =
      measure_seconds([&] { parallel_for(num_threads, [&](int64_t, int) { sink = loop.run(kPeakSteps); }); });
  return loop.operations_per_step * static_cast<double>(kPeakSteps) * num_threads / seconds;
}

Arithmetic best_vectors(int num_threads, DType operands) {
  const bool in_pairs = operands == DType::kBF16 || is_fp8(operands);
  Arithmetic best = Arithmetic::kPortableF32;
  double best_rate = 0;
  for (Arithmetic arithmetic : available_arithmetic()) {
    if (arithmetic == Arithmetic::kAmxBf16 || (arithmetic == Arithmetic::kAvx512Bf16 && !in_pairs)) continue;
    const double rate = operations_per_second(arithmetic, num_threads);
    if (rate > best_rate) best = arithmetic;
    best_rate = std::max(best_rate, rate);
  }
  return best;
}

}  // namespace attend::bench
