// Attention of few query rows, as in decode: K and V are read in the layout of the pages and converted in
// registers, once for up to four rows.
//
// Packing a tile of K (tile_pack.h) costs about as much as multiplying it with a dozen rows. Here the sum
// over head_dim runs along the lanes instead, and 16 sums (4 keys x 4 rows on AVX-512) are reduced together.
#pragma once

#include <bit>

#include "attend/kernels/attention/cpu/tile_rows.h"
#include "attend/kernels/common/cpu/mac.h"
#include "attend/kernels/common/cpu/unroll.h"

namespace attend::kernels::cpu {
namespace {

inline constexpr int kSkinnyRowsPerPass = 4;

// Permutes q in place to the order of load_block<T>, if it differs from the natural order.
template <class M, class T>
void order_queries(typename M::Step* q, int64_t stride, int num_rows, int dim) {
  constexpr int kLanes = M::Simd::kLanes;
  for (int row = 0; row < num_rows; ++row, q += stride)
    for (int d = 0; d < dim; d += M::kBlock) {
      auto* const block = q + d / M::kElements;
      typename M::StepVec steps[M::kBlockVecs];
      for (int i = 0; i < M::kBlockVecs; ++i) steps[i] = M::load(block + i * kLanes);
      M::template order_query<T>(steps);
      for (int i = 0; i < M::kBlockVecs; ++i) M::store(block + i * kLanes, steps[i]);
    }
}

// Prefetches data of `next` while this tile is processed: pages have arbitrary addresses, so the hardware
// cannot predict the next one. If there is no next row, prefetches `otherwise`.
inline void prefetch(const char* next, const char* otherwise, int64_t byte) {
  __builtin_prefetch((next != nullptr ? next : otherwise) + byte, 0, 2);
}

// Returns true if the block of elements from d is the first one in its cache line, counted from the start of
// the row.
template <class M, class T>
bool starts_cache_line(int d) {
  constexpr int kLineElements = 64 / static_cast<int>(sizeof(T));
  return M::kBlock >= kLineElements || d % kLineElements == 0;
}

// scores[row, key] = q.k for kRows rows and one tile; scores of absent keys are undefined.
template <class M, class T, int kRows>
void multiply_queries(const typename M::Step* q, int64_t q_stride, const TileRows& tile, const TileRows& next,
                      int dim, float* scores) {
  using S = typename M::Simd;
  constexpr int kLanes = S::kLanes, kBlock = M::kBlock;
  constexpr int kSlots = kRows == 3 ? 4 : kRows;  // rows of the sums: a power of two
  constexpr int kKeys = kLanes / kSlots;
  const char* const any_row = tile.k[std::countr_zero(tile.present)];
  for (int key = 0; key < kTileKeys; key += kKeys) {
    if ((tile.present >> key & range_bits(0, kKeys, 0)) == 0) continue;
    const char* rows[kKeys];
    typename S::F32 sums[kLanes];
    unrolled<kKeys>([&](auto i) __attribute__((always_inline)) {
      rows[i] = tile.k[key + i] != nullptr ? tile.k[key + i] : any_row;
    });
    unrolled<kLanes>([&](auto i) __attribute__((always_inline)) { sums[i] = S::zero(); });
    const auto add_block = [&](int d, int n) __attribute__((always_inline)) {
      // Keys per iteration, limited by the registers that the sums leave.
      constexpr int kMaxUnroll = M::kBlockVecs > 2 ? 1 : S::kRegisters == 16 ? 2 : kKeys;
      constexpr int kAtOnce = kMaxUnroll < kKeys ? kMaxUnroll : kKeys;
      unrolled<kKeys / kAtOnce>([&](auto part) __attribute__((always_inline)) {
        constexpr int kFirst = part * kAtOnce;
        typename M::StepVec k[kAtOnce][M::kBlockVecs];
        unrolled<kAtOnce>([&](auto i) __attribute__((always_inline)) {
          const char* const row = rows[kFirst + i];
          M::load_block(reinterpret_cast<const T*>(row) + d, n, k[i]);
          if (starts_cache_line<M, T>(d))
            prefetch(next.k[key + kFirst + i], row, d * static_cast<int>(sizeof(T)));
        });
        unrolled<M::kBlockVecs>([&](auto vec) __attribute__((always_inline)) {
          unrolled<kRows>([&](auto row) __attribute__((always_inline)) {
            auto q_steps = M::load(q + row * q_stride + d / M::kElements + vec * kLanes);
            M::keep_in_register(q_steps);
            unrolled<kAtOnce>([&](auto i) __attribute__((always_inline)) {
              auto& sum = sums[row * kKeys + kFirst + i];
              sum = M::mac(q_steps, k[i][vec], sum);
            });
          });
        });
      });
    };
    int d = 0;
    for (; d + kBlock <= dim; d += kBlock) add_block(d, kBlock);
    if (d < dim) add_block(d, dim - d);
    float folded[kLanes];
    S::store(folded, S::reduce_add_lanes(sums));
    for (int row = 0; row < kRows; ++row)
      for (int i = 0; i < kKeys; ++i) scores[row * kTileKeys + key + i] = folded[row * kKeys + i];
  }
}

// acc[row, d] = rescale[row] * acc[row, d] + sum over keys of p[row, key] * v[key, d], for kRows rows and the
// columns d of kBlocks blocks from `first`; V has `dim` columns. Every element is summed in the order of
// tile_multiply.h.
template <class M, class T, int kRows, int kBlocks>
void add_value_columns(const typename M::Step* p, const TileRows& tile, const TileRows& next, int first,
                       int dim, float* acc, int64_t acc_stride, const float* rescale) {
  using S = typename M::Simd;
  constexpr int kLanes = S::kLanes, kBlock = M::kBlock, kVecs = M::kColumnVecs;
  typename S::F32 sums[kRows][kBlocks][kVecs];
  const auto for_each_block = [&](const auto& fn) __attribute__((always_inline)) {
    unrolled<kRows>([&](auto row) __attribute__((always_inline)) {
      unrolled<kBlocks>([&](auto block) __attribute__((always_inline)) {
        fn(row, sums[row][block], acc + row * acc_stride + first + block * kBlock);
      });
    });
  };
  for_each_block([&](auto row, auto& vecs, const float* columns) __attribute__((always_inline)) {
    unrolled<kVecs>([&](auto vec) __attribute__((always_inline)) {
      vecs[vec] = S::mul(S::set1(rescale[row]), S::load(columns + vec * kLanes));
    });
    M::template order_columns<T>(vecs);
  });
  const auto add_keys = [&](int key, auto is_whole) __attribute__((always_inline)) {
    const char* rows[M::kElements];
    unrolled<M::kElements>([&](auto i) __attribute__((always_inline)) { rows[i] = tile.v[key + i]; });
    typename M::StepVec v[kBlocks][kVecs];
    unrolled<kBlocks>([&](auto block) __attribute__((always_inline)) {
      const int d = first + block * kBlock;
      M::template load_block_across<T>(rows, d, is_whole ? kBlock : dim - d, v[block]);
      if (starts_cache_line<M, T>(d))
        unrolled<M::kElements>([&](auto i) __attribute__((always_inline)) {
          prefetch(next.v[key + i], rows[i], d * static_cast<int>(sizeof(T)));
        });
    });
    unrolled<kRows>([&](auto row) __attribute__((always_inline)) {
      const auto key_p = M::broadcast(p + row * kTileKeys + key / M::kElements);
      unrolled<kBlocks>([&](auto block) __attribute__((always_inline)) {
        unrolled<kVecs>([&](auto vec) __attribute__((always_inline)) {
          sums[row][block][vec] = M::mac(key_p, v[block][vec], sums[row][block][vec]);
        });
      });
    });
  };
  const bool is_whole = first + kBlocks * kBlock <= dim;
  const auto is_needed = [&](int key) { return (tile.present >> key & range_bits(0, M::kElements, 0)) != 0; };
  if (is_whole && ~tile.present == 0) {
    for (int key = 0; key < kTileKeys; key += M::kElements) add_keys(key, std::true_type{});
  } else if (is_whole) {
    for (int key = 0; key < kTileKeys; key += M::kElements)
      if (is_needed(key)) add_keys(key, std::true_type{});
  } else {
    for (int key = 0; key < kTileKeys; key += M::kElements)
      if (is_needed(key)) add_keys(key, std::false_type{});
  }
  for_each_block([&](auto, auto& vecs, float* columns) __attribute__((always_inline)) {
    M::template restore_columns<T>(vecs);
    unrolled<kVecs>([&](auto vec)
                        __attribute__((always_inline)) { S::store(columns + vec * kLanes, vecs[vec]); });
  });
}

template <class M, class T, int kRows>
void add_values(const typename M::Step* p, const TileRows& tile, const TileRows& next, int dim, float* acc,
                int64_t acc_stride, const float* rescale) {
  using S = typename M::Simd;
  // Number of sums, limited by the registers that the blocks of V leave.
  constexpr int kBlocks = S::kRegisters / (kRows <= 2 ? 8 : 16) * 2 / M::kColumnVecs;
  constexpr int kBlock = M::kBlock;
  int d = 0;
  for (; d + kBlocks * kBlock <= dim; d += kBlocks * kBlock)
    add_value_columns<M, T, kRows, kBlocks>(p, tile, next, d, dim, acc, acc_stride, rescale);
  for (; d < dim; d += kBlock)
    add_value_columns<M, T, kRows, 1>(p, tile, next, d, dim, acc, acc_stride, rescale);
}

// Calls fn(row, Rows<n>{}) for the rows in pieces of at most four.
template <int kRows>
struct Rows {};
template <class Fn>
void for_skinny_rows(int num_rows, const Fn& fn) {
  int row = 0;
  for (; row + kSkinnyRowsPerPass <= num_rows; row += kSkinnyRowsPerPass) fn(row, Rows<kSkinnyRowsPerPass>{});
  if (num_rows - row == 3) fn(row, Rows<3>{});
  if (num_rows - row == 2) fn(row, Rows<2>{});
  if (num_rows - row == 1) fn(row, Rows<1>{});
}

}  // namespace
}  // namespace attend::kernels::cpu
