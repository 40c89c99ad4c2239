// Packs q, K and V of a tile into the steps of a policy M (mac.h). Each element of K and V is converted once
// for all rows of the tile.
#pragma once

#include "attend/kernels/attention/cpu/attention_problem.h"
#include "attend/kernels/attention/cpu/tile_rows.h"
#include "attend/kernels/common/cpu/mac.h"

namespace attend::kernels::cpu {
namespace {

inline constexpr int smaller(int a, int b) { return a < b ? a : b; }

// Packs the query rows: packed[row, step] with row = token * group + head in group. Whole vectors are
// written: data past the last element of a part is overwritten by the next part or row, or never read.
template <class M, class T>
void pack_queries(const AttentionProblem& problem, int64_t first_token, int num_tokens, int kv_head,
                  typename M::Step* packed, int64_t stride) {
  constexpr int kChunk = M::Simd::kLanes * M::kElements;
  const int group = problem.group();
  for (int row = 0; row < num_tokens * group; ++row) {
    typename M::Step* steps = packed + row * stride;
    for (const QueryPart& part : problem.q) {
      const T* elements = static_cast<const T*>(part.data) + (first_token + row / group) * part.token_stride +
                          (kv_head * group + row % group) * part.head_stride;
      for (int d = 0; d < part.dim; d += kChunk)
        M::store(steps + d / M::kElements, M::load_steps(elements + d, smaller(kChunk, part.dim - d)));
      steps += part.dim / M::kElements;
    }
  }
}

// Packs packed[step, key] from the rows of K; null rows become zeros.
template <class M, class T>
void pack_keys(const char* const (&rows)[kTileKeys], int dim, typename M::Step* packed) {
  constexpr int kLanes = M::Simd::kLanes, kChunk = kLanes * M::kElements;
  for (int key = 0; key < kTileKeys; key += kLanes)
    for (int d = 0; d < dim; d += kChunk) {
      const int count = smaller(kChunk, dim - d);
      typename M::StepVec steps[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        const T* row = reinterpret_cast<const T*>(rows[key + i]);
        steps[i] = row == nullptr ? M::zero() : M::load_steps(row + d, count);
      }
      M::transpose(steps);
      for (int i = 0; i * M::kElements < count; ++i)
        M::store(packed + (d / M::kElements + i) * kTileKeys + key, steps[i]);
    }
}

// Packs packed[step, dim] from the rows of V: a step spans kElements keys.
template <class M, class T>
void pack_values(const char* const (&rows)[kTileKeys], int dim, typename M::Step* packed, int64_t stride) {
  constexpr int kLanes = M::Simd::kLanes;
  for (int key = 0; key < kTileKeys; key += M::kElements, packed += stride) {
    const T* across[M::kElements];
    for (int d = 0; d < dim; d += kLanes) {
      for (int i = 0; i < M::kElements; ++i) {
        const T* row = reinterpret_cast<const T*>(rows[key + i]);
        across[i] = row == nullptr ? nullptr : row + d;
      }
      M::store(packed + d, M::load_across(across, smaller(kLanes, dim - d)));
    }
  }
}

}  // namespace
}  // namespace attend::kernels::cpu
