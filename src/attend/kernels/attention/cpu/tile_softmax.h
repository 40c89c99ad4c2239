// Online softmax of a tile of scores (arXiv 1805.02867): maxima first, then P and its row sums.
#pragma once

#include <limits>

#include "attend/kernels/attention/cpu/tile_scratch.h"
#include "attend/kernels/common/cpu/mac.h"

namespace attend::kernels::cpu {
namespace {

// Applies exp_nonpositive() to the first n elements.
template <class S>
void exp_nonpositive_in_place(float* x, int n) {
  for (int i = 0; i < n; i += S::kLanes) {
    const int count = n - i < S::kLanes ? n - i : S::kLanes;
    S::store_first(x + i, exp_nonpositive<S>(S::load_first(x + i, count)), count);
  }
}

// Converts products q.k to scores, with -inf for keys that a row does not see, and updates row_max.
// row_rescale becomes e^(old maximum - new maximum). unmasked_words: [num_tokens], where row / group is the
// token.
template <class S>
void score_rows(const AttentionProblem& problem, const uint64_t* unmasked_words, int row_begin, int row_end,
                TileScratch& scratch) {
  using F32 = typename S::F32;
  const int group = problem.group();
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const F32 scale = S::set1(problem.scale), none = S::set1(kNone);
  const F32 cap = S::set1(problem.logit_cap), cap_inverse = S::set1(1.0f / problem.logit_cap);
  for (int row = row_begin; row < row_end; ++row) {
    const uint64_t visible = unmasked_words[row / group];
    float* const scores = scratch.scores + row * kTileKeys;
    F32 lane_max = none;
    for (int key = 0; key < kTileKeys; key += S::kLanes) {
      F32 score = S::mul(S::load(scores + key), scale);
      if (problem.logit_cap != 0) score = S::mul(cap, tanh<S>(S::mul(score, cap_inverse)));
      if (~visible != 0) score = S::keep(visible >> key, score, none);
      S::store(scores + key, score);
      lane_max = S::max(lane_max, score);
    }
    const float old_max = scratch.row_max[row];
    const float tile_max = S::reduce_max(lane_max);
    const float new_max = tile_max > old_max ? tile_max : old_max;
    scratch.row_max[row] = new_max;
    // A row without keys so far has nothing to rescale; 0 avoids -inf - -inf.
    scratch.row_rescale[row] = new_max == kNone ? 0.0f : old_max - new_max;
  }
  exp_nonpositive_in_place<S>(scratch.row_rescale + row_begin, row_end - row_begin);
}

// Passes P = e^(score - maximum) to `products` (item_context.h) and adds it to row_sum.
template <class Products>
void exponentiate_rows(Products& products, int row_begin, int row_end, TileScratch& scratch) {
  using S = typename Products::Simd;
  using F32 = typename S::F32;
  for (int row = row_begin; row < row_end; ++row) {
    const float* const scores = scratch.scores + row * kTileKeys;
    const float max = scratch.row_max[row];
    const F32 reference = S::set1(max == -std::numeric_limits<float>::infinity() ? 0.0f : max);
    F32 sum = S::mul(S::load(scratch.row_sum + row * 16), S::set1(scratch.row_rescale[row]));
    for (int key = 0; key < kTileKeys; key += S::kLanes * Products::kPVecs) {
      F32 p[Products::kPVecs];
      for (int i = 0; i < Products::kPVecs; ++i) {
        p[i] = exp_nonpositive<S>(S::sub(S::load(scores + key + i * S::kLanes), reference));
        sum = S::add(sum, p[i]);
      }
      products.store_p(row, key, p);
    }
    S::store(scratch.row_sum + row * 16, sum);
  }
}

}  // namespace
}  // namespace attend::kernels::cpu
