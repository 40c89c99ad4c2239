// Instructions of Hopper's tensor cores for e4m3, emulated on the CPU as PTX ISA describes registers and
// shared memory, so that a kernel's layouts can be tested without a GPU.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "attend/tensor/dtype.h"

namespace attend::conformance::emulated {

// Shared memory. In the 128-byte swizzle that TMA writes and wgmma reads, data is at swizzled(address): bits
// 4 to 6 are xored with bits 7 to 9.
using SharedMemory = std::vector<uint8_t>;
inline int swizzled(int address) { return address ^ (address >> 7 & 7) << 4; }

// "ldmatrix.x4.trans" of a warp. Lane l passes rows[l], the address of row l % 8 of matrix l / 8.
using WarpRegisters = std::array<std::array<uint32_t, 4>, 32>;
inline WarpRegisters ldmatrix_x4_trans(const SharedMemory& memory, const std::array<int, 32>& rows) {
  WarpRegisters registers{};
  for (int lane = 0; lane < 32; ++lane)
    for (int matrix = 0; matrix < 4; ++matrix)
      for (int pair = 0; pair < 2; ++pair) {
        // 16-bit element (row 2 (l % 4) + pair, column l / 4).
        const int address = rows[static_cast<size_t>(8 * matrix + 2 * (lane % 4) + pair)] + 2 * (lane / 4);
        const auto element = static_cast<uint32_t>(memory.at(static_cast<size_t>(address)) |
                                                   memory.at(static_cast<size_t>(address + 1)) << 8);
        registers[static_cast<size_t>(lane)][static_cast<size_t>(matrix)] |= element << (16 * pair);
      }
  return registers;
}

// "stmatrix.x4" of a warp.
inline void stmatrix_x4(SharedMemory& memory, const std::array<int, 32>& rows,
                        const WarpRegisters& registers) {
  for (int lane = 0; lane < 32; ++lane)
    for (int matrix = 0; matrix < 4; ++matrix)
      for (int byte = 0; byte < 4; ++byte) {
        const int address = rows[static_cast<size_t>(8 * matrix + lane / 4)] + 4 * (lane % 4) + byte;
        memory.at(static_cast<size_t>(address)) = static_cast<uint8_t>(
            registers[static_cast<size_t>(lane)][static_cast<size_t>(matrix)] >> (8 * byte));
      }
}

// "prmt".
inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
  return result;
}

inline float number(uint8_t bits) { return static_cast<float>(F8E4M3::from_bits(bits)); }

// Sum of the products of one step as computed by tensor cores: truncated 13 bits below the largest product or
// addend. The hardware's exact rounding is undocumented; this model loses as much precision.
inline float cut_sum(float before, const std::array<float, 32>& products) {
  float largest = std::abs(before);
  for (const float product : products) largest = std::max(largest, std::abs(product));
  if (!(largest > 0.0f) || !std::isfinite(largest)) {
    for (const float product : products) before += product;
    return before;
  }
  const float unit = std::ldexp(1.0f, std::ilogb(largest) - 13);
  float sum = std::trunc(before / unit);
  for (const float product : products) sum += std::trunc(product / unit);
  return sum * unit;
}

// "wgmma.mma_async.m64nNk32". Accumulator 4 n + 2 half + i of thread t in the warpgroup is row 16 (t / 32) +
// t % 32 / 4 + 8 half and column 8 n + 2 (t % 4) + i.
template <int kN>
using Accumulators = std::array<std::array<float, kN / 2>, 128>;

// Byte `k` of row `row` of a K-major operand in the 128-byte swizzle. Groups of eight rows are 1024 bytes
// apart; the descriptor's address is `start`.
inline float element(const SharedMemory& memory, int start, int row, int k) {
  return number(memory.at(static_cast<size_t>(swizzled(start + row / 8 * 1024 + row % 8 * 128 + k))));
}

// Computes accumulators (+)= a b^T; `a_of(row, k)` returns elements of a.
template <int kN, class AOf>
void multiply(Accumulators<kN>& accumulators, const AOf& a_of, const SharedMemory& memory, int b, bool add) {
  for (int t = 0; t < 128; ++t)
    for (int n = 0; n < kN / 8; ++n)
      for (int half = 0; half < 2; ++half)
        for (int i = 0; i < 2; ++i) {
          const int row = 16 * (t / 32) + t % 32 / 4 + 8 * half, column = 8 * n + 2 * (t % 4) + i;
          std::array<float, 32> products;
          for (int k = 0; k < 32; ++k)
            products[static_cast<size_t>(k)] = a_of(row, k) * element(memory, b, column, k);
          float& accumulator =
              accumulators[static_cast<size_t>(t)][static_cast<size_t>(4 * n + 2 * half + i)];
          accumulator = cut_sum(add ? accumulator : 0.0f, products);
        }
}

// Operand A in shared memory at `a`.
template <int kN>
void wgmma(Accumulators<kN>& accumulators, const SharedMemory& memory, int a, int b, bool add) {
  multiply<kN>(
      accumulators, [&](int row, int k) { return element(memory, a, row, k); }, memory, b, add);
}

// Operand A in registers. Byte e of register r of thread t is row 16 (t / 32) + t % 32 / 4 + 8 (r % 2),
// column 16 (r / 2) + 4 (t % 4) + e.
using RegistersA = std::array<std::array<uint32_t, 4>, 128>;
template <int kN>
void wgmma_rs(Accumulators<kN>& accumulators, const RegistersA& a, const SharedMemory& memory, int b) {
  const auto a_of = [&](int row, int k) {
    const int t = row / 16 * 32 + row % 8 * 4 + k % 16 / 4, reg = k / 16 * 2 + row % 16 / 8;
    return number(static_cast<uint8_t>(a[static_cast<size_t>(t)][static_cast<size_t>(reg)] >> (8 * (k % 4))));
  };
  multiply<kN>(accumulators, a_of, memory, b, true);
}

}  // namespace attend::conformance::emulated
