// IndexScoreKernels in the vectors of simd.h.
//
//   tile       4 vectors of keys, transposed: one key per lane
//   registers  products of 4 heads (2 with 16 registers) with the tile
//   per step   a column of the tile (4 loads), an element of q per head (a broadcast), 4 FMAs per head
//   bound      FMA throughput with 32 registers; all queries of a request share a transposed tile
#pragma once

#include "attend/kernels/common/cpu/row_loop.h"
#include "attend/kernels/common/cpu/simd.h"
#include "attend/kernels/indexer/cpu/index_scores_kernels.h"

namespace attend::kernels::cpu {
namespace {

constexpr int kKeyVecs = 4;

template <class S, class T>
void transpose_keys(const void* const* rows, int64_t head_dim, float* keys) {
  constexpr int kTileKeys = kKeyVecs * S::kLanes;
  for (int first_key = 0; first_key < kTileKeys; first_key += S::kLanes)
    for (int64_t d = 0; d < head_dim; d += S::kLanes) {
      const int count = head_dim - d < S::kLanes ? static_cast<int>(head_dim - d) : S::kLanes;
      typename S::F32 block[S::kLanes];
      for (int i = 0; i < S::kLanes; ++i)
        block[i] = S::load_first(static_cast<const T*>(rows[first_key + i]) + d, count);
      S::transpose(block);
      for (int i = 0; i < count; ++i) S::store(keys + (d + i) * kTileKeys + first_key, block[i]);
    }
}

template <class S>
void transpose_keys(const void* const* rows, DType dtype, int64_t head_dim, float* keys) {
  visit_weight(rows[0], dtype, [&]<class T>(const T*) { transpose_keys<S, T>(rows, head_dim, keys); });
}

template <class S, int kHeads>
void add_head_scores(const float* q, int64_t head_stride, const float* weights, int64_t head_dim,
                     const float* keys, typename S::F32 (&sums)[kKeyVecs]) {
  using F32 = typename S::F32;
  F32 products[kHeads][kKeyVecs];
  for (auto& head : products)
    for (F32& product : head) product = S::zero();
  for (int64_t d = 0; d < head_dim; ++d) {
    F32 k[kKeyVecs];
    for (int v = 0; v < kKeyVecs; ++v) k[v] = S::load(keys + (d * kKeyVecs + v) * S::kLanes);
    for (int h = 0; h < kHeads; ++h) {
      const F32 x = S::set1(q[h * head_stride + d]);
      for (int v = 0; v < kKeyVecs; ++v) products[h][v] = S::fma(x, k[v], products[h][v]);
    }
  }
  for (int h = 0; h < kHeads; ++h)
    for (int v = 0; v < kKeyVecs; ++v)
      sums[v] = S::fma(S::set1(weights[h]), S::max(S::zero(), products[h][v]), sums[v]);
}

template <class S>
void score_keys(const float* q, int64_t head_stride, const float* weights, int64_t num_heads,
                int64_t head_dim, const float* keys, float* scores) {
  constexpr int kHeads = S::kRegisters >= 32 ? 4 : 2;
  typename S::F32 sums[kKeyVecs];
  for (auto& sum : sums) sum = S::zero();
  int64_t head = 0;
  for (; head + kHeads <= num_heads; head += kHeads)
    add_head_scores<S, kHeads>(q + head * head_stride, head_stride, weights + head, head_dim, keys, sums);
  for (; head < num_heads; ++head)
    add_head_scores<S, 1>(q + head * head_stride, head_stride, weights + head, head_dim, keys, sums);
  for (int v = 0; v < kKeyVecs; ++v) S::store(scores + v * S::kLanes, sums[v]);
}

template <class S>
IndexScoreKernels make_index_score_kernels() {
  static_assert(kMaxTileKeys % (kKeyVecs * S::kLanes) == 0);
  return {.tile_keys = kKeyVecs * S::kLanes, .transpose = transpose_keys<S>, .score = score_keys<S>};
}

}  // namespace
}  // namespace attend::kernels::cpu
