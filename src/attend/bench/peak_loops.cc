#include "attend/bench/peak_loops.h"

#include <cstring>

#include "attend/base/error.h"
#include "attend/kernels/common/cpu/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "attend/kernels/common/cpu/amx_tiles.h"
#endif

namespace attend::bench {
namespace {

// Independent accumulators: latency times throughput of the slowest instruction measured. Their initial
// values differ, so that the compiler cannot merge them.
constexpr int kSums = 12;

float portable_peak(int64_t num_steps) {
  constexpr int kFloats = 32;
  float sums[kFloats];
  for (int i = 0; i < kFloats; ++i) sums[i] = static_cast<float>(i);
  for (int64_t step = 0; step < num_steps; ++step)
    for (int i = 0; i < kFloats; ++i) sums[i] = sums[i] * 0.5f + 0.25f;
  float total = 0;
  for (float sum : sums) total += sum;
  return total;
}

uint64_t portable_read(std::span<const std::byte> memory) {
  constexpr size_t kWords = 8;
  uint64_t sums[kWords] = {};
  for (size_t at = 0; at < memory.size(); at += sizeof(sums)) {
    uint64_t words[kWords];
    std::memcpy(words, memory.data() + at, sizeof(words));
    for (size_t i = 0; i < kWords; ++i) sums[i] += words[i];
  }
  for (size_t i = 1; i < kWords; ++i) sums[0] += sums[i];
  return sums[0];
}

#if defined(__x86_64__)

enum class Fetch { kNone, kKept, kOnce };

// Prefetches the lines `ahead` bytes further on; a prefetch past the end of the memory has no effect.
template <Fetch kFetch>
[[gnu::always_inline]] inline void fetch(const std::byte* line, size_t ahead) {
  if constexpr (kFetch != Fetch::kNone)
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(line) + ahead), 0,
                       kFetch == Fetch::kKept ? 2 : 0);
}

// Reads kStreams streams, each over its part of the memory in order.
template <int kStreams, Fetch kFetch>
__attribute__((target("avx2"))) uint64_t avx2_read(std::span<const std::byte> memory, size_t ahead) {
  constexpr size_t kBytes = 256;
  const size_t share = memory.size() / kStreams;
  __m256i sums[8] = {};
  for (size_t at = 0; at < share; at += kBytes)
#pragma GCC unroll 4
    for (size_t stream = 0; stream < kStreams; ++stream) {
      const std::byte* words = memory.data() + stream * share + at;
#pragma GCC unroll 8
      for (size_t i = 0; i < 8; ++i) {
        if (i % 2 == 0) fetch<kFetch>(words + i * 32, ahead);
        sums[i] = _mm256_xor_si256(sums[i], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words) + i));
      }
    }
  for (int i = 1; i < 8; ++i) sums[0] = _mm256_xor_si256(sums[0], sums[i]);
  return static_cast<uint64_t>(sums[0][0] ^ sums[0][1] ^ sums[0][2] ^ sums[0][3]);
}

template <int kStreams, Fetch kFetch>
__attribute__((target("avx512f"))) uint64_t avx512_read(std::span<const std::byte> memory, size_t ahead) {
  constexpr size_t kBytes = 512;
  const size_t share = memory.size() / kStreams;
  __m512i sums[8] = {};
  for (size_t at = 0; at < share; at += kBytes)
#pragma GCC unroll 4
    for (size_t stream = 0; stream < kStreams; ++stream) {
      const std::byte* words = memory.data() + stream * share + at;
#pragma GCC unroll 8
      for (size_t i = 0; i < 8; ++i) {
        fetch<kFetch>(words + i * 64, ahead);
        sums[i] = _mm512_xor_si512(sums[i], _mm512_loadu_si512(words + i * 64));
      }
    }
  for (int i = 1; i < 8; ++i) sums[0] = _mm512_xor_si512(sums[0], sums[i]);
  return static_cast<uint64_t>(_mm512_reduce_or_epi64(sums[0]));
}

using Read = uint64_t (*)(std::span<const std::byte> memory, size_t ahead);

template <int kStreams, Fetch kFetch>
Read get_read_loop(bool avx512) {
  return avx512 ? &avx512_read<kStreams, kFetch> : &avx2_read<kStreams, kFetch>;
}

template <int kStreams>
Read get_read_loop(bool avx512, const ReadMethod& way) {
  if (way.ahead == 0) return get_read_loop<kStreams, Fetch::kNone>(avx512);
  return way.once ? get_read_loop<kStreams, Fetch::kOnce>(avx512)
                  : get_read_loop<kStreams, Fetch::kKept>(avx512);
}

Read read_by_vectors(bool avx512, const ReadMethod& way) {
  if (way.num_streams == 4) return get_read_loop<4>(avx512, way);
  return way.num_streams == 2 ? get_read_loop<2>(avx512, way) : get_read_loop<1>(avx512, way);
}

__attribute__((target("avx2,fma"))) float avx2_peak(int64_t num_steps) {
  __m256 sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 x = _mm256_set1_ps(0.5f);
  for (int64_t step = 0; step < num_steps; ++step)
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm256_fmadd_ps(sums[i], x, x);
  float total = 0;
  for (int i = 0; i < kSums; ++i) total += sums[i][0];
  return total;
}

__attribute__((target("avx512f"))) float avx512_peak(int64_t num_steps) {
  __m512 sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 x = _mm512_set1_ps(0.5f);
  for (int64_t step = 0; step < num_steps; ++step)
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_fmadd_ps(sums[i], x, x);
  float total = 0;
  for (int i = 0; i < kSums; ++i) total += sums[i][0];
  return total;
}

__attribute__((target("avx512f,avx512bf16"))) float avx512bf16_peak(int64_t num_steps) {
  __m512 sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  // Pairs of the bfloat16 value 2^-7.
  const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3c00));
  for (int64_t step = 0; step < num_steps; ++step)
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], x, x);
  float total = 0;
  for (int i = 0; i < kSums; ++i) total += sums[i][0];
  return total;
}

constexpr int kAmxSums = 4;  // tiles of accumulators; the other four of eight hold operands

float amx_peak(int64_t num_steps) {
  using namespace kernels::cpu;
  const FullAmxTiles tiles;
  uint16_t ones[kTileSide * kTileInner];
  for (uint16_t& one : ones) one = 0x3f80;  // the bfloat16 value 1
  load_tile<4>(ones, kTileRowBytes);
  load_tile<5>(ones, kTileRowBytes);
  load_tile<6>(ones, kTileRowBytes);
  load_tile<7>(ones, kTileRowBytes);
  unrolled<kAmxSums>([](auto sum) { zero_tile<sum>(); });
  for (int64_t step = 0; step < num_steps; ++step) {
    multiply_tile<0, 4, 6>();
    multiply_tile<1, 4, 7>();
    multiply_tile<2, 5, 6>();
    multiply_tile<3, 5, 7>();
  }
  float sums[kAmxSums][kTileSide * kTileSide];
  unrolled<kAmxSums>([&](auto sum) { store_tile<sum>(sums[sum], kTileRowBytes); });
  return sums[0][0] + sums[1][1] + sums[2][2] + sums[3][3];
}

#endif

}  // namespace

float read_loop(std::span<const std::byte> memory, const ReadMethod& way) {
  ensure(memory.size() % kReadUnit == 0, "read probe of ", memory.size(), " bytes");
#if defined(__x86_64__)
  const kernels::cpu::Isa isa = kernels::cpu::detect_isa();
  if (isa >= kernels::cpu::Isa::kAvx2)
    return static_cast<float>(read_by_vectors(isa >= kernels::cpu::Isa::kAvx512, way)(memory, way.ahead));
#endif
  return static_cast<float>(portable_read(memory));
}

PeakLoop peak_loop(Arithmetic arithmetic) {
#if defined(__x86_64__)
  switch (arithmetic) {
    case Arithmetic::kPortableF32:
      break;
    case Arithmetic::kAvx2F32:
      return {avx2_peak, 2.0 * 8 * kSums};
    case Arithmetic::kAvx512F32:
      return {avx512_peak, 2.0 * 16 * kSums};
    case Arithmetic::kAvx512Bf16:
      return {avx512bf16_peak, 2.0 * 32 * kSums};
    case Arithmetic::kAmxBf16:
      return {amx_peak, 2.0 * 16 * 16 * 32 * kAmxSums};
  }
#endif
  ensure(arithmetic == Arithmetic::kPortableF32, "peak loop of ", to_string(arithmetic));
  return {portable_peak, 2.0 * 32};
}

}  // namespace attend::bench
