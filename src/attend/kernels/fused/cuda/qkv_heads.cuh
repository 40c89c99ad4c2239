// What becomes of the sums of the product that q, k and v come from: a pair of elements of a head, one of
// each half, is a unit's two groups.
#pragma once

#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/fused/cuda/qkv_kernel.h"
#include "attend/kernels/gemm/cuda/sm80/few_rows_kernel.cuh"
#include "attend/kernels/norm_rope/cuda/rotate.cuh"

namespace attend::kernels::cuda {

// Where pairs stand in heads, and where they go: q to out, k and v to the cache.
class HeadPlaces {
 public:
  // What is asked for before the weights of a pass.
  struct Turn {
    float cos = 1.0f, sin = 0.0f;
    int slot = -1;
  };

  __device__ explicit HeadPlaces(const QkvParams& params)
      : product_(params.product),
        rope_(params.rope),
        num_q_(params.rope.heads[0].num_heads),
        num_k_(params.rope.heads[1].num_heads) {}

  __device__ int units_of_head() const { return product_.head_half / kFeatures; }
  __device__ int head_of(int unit) const { return unit / units_of_head(); }
  __device__ int unit_of_head(int unit) const { return unit & (units_of_head() - 1); }
  __device__ int element_of_head(int unit, int row) const { return unit_of_head(unit) * kFeatures + row; }
  __device__ bool is_v(int unit) const { return head_of(unit) >= num_q_ + num_k_; }

  __device__ void ask(int token, int unit, int row, Turn& turn) const {
    const int64_t position = rope_.positions[token];
    const int d = element_of_head(unit, row);
    turn.cos = rope_.cos[position * rope_.cos_stride + d];
    turn.sin = rope_.sin[position * rope_.sin_stride + d];
    turn.slot = slot_of(rope_.store, token);
  }

  // The product's pair, as it would come back from out.
  template <class Sum>
  __device__ float2 pair_of(int unit, int row, const Sum& sum) const {
    const int half = product_.head_half;
    const int feature = head_of(unit) * 2 * half + element_of_head(unit, row);
    return make_float2(rounded(sum(0, feature), product_.out_element),
                       rounded(sum(1, feature + half), product_.out_element));
  }

  // Turns a pair, unless it is of v, and puts it where it goes.
  __device__ void put(int token, int unit, int row, const Turn& turn, float2 pair) const {
    const int head = head_of(unit), d = element_of_head(unit, row), half = product_.head_half;
    const bool v = is_v(unit);
    if (!v) pair = rotated(pair.x, pair.y, turn.cos, turn.sin);
    if (head < num_q_) {
      const int64_t to = token * product_.out_stride + head * 2 * half + d;
      store_element(product_.out, to, product_.out_element, pair.x);
      store_element(product_.out, to + half, product_.out_element, pair.y);
      return;
    }
    const CacheRow cache(rope_.store, v ? 1 : 0, turn.slot, head - num_q_ - (v ? num_k_ : 0));
    // The cache holds what would be read back from k.
    cache.write(d, rounded(pair.x, product_.out_element));
    cache.write(d + half, rounded(pair.y, product_.out_element));
  }

 protected:
  const FewRowsParams& product_;
  const NormRopeParams& rope_;
  int num_q_, num_k_;
};

class HeadsOut : public HeadPlaces {
 public:
  static constexpr bool kHeads = true, kMeets = false;
  using Early = Turn;
  using HeadPlaces::HeadPlaces;

  template <class Sum>
  __device__ void write(int token, int unit, int row, const Early& early, const Sum& sum) const {
    put(token, unit, row, early, pair_of(unit, row, sum));
  }
};

// Heads of q and k are normed before they turn: the CTAs of a cluster, which share a head, tell each other
// the squares of its pairs.
class NormedHeadsOut : public HeadPlaces {
 public:
  static constexpr bool kHeads = true, kMeets = true;
  static constexpr int kMaxPairsOfHead = kMaxRopeHalf;
  struct Early : Turn {
    float2 norm = make_float2(1.0f, 1.0f);
    float2 pair = make_float2(0.0f, 0.0f);
  };

  // `squares`: [rows, kMaxPairsOfHead] of shared memory, at the same place in every CTA.
  __device__ NormedHeadsOut(const QkvParams& params, float* squares)
      : HeadPlaces(params), squares_(squares), ctas_of_head_(params.ctas_of_head) {
    ptx::arrive_at_cluster_relaxed();
  }

  __device__ void ask(int token, int unit, int row, Early& early) const {
    HeadPlaces::ask(token, unit, row, early);
    if (is_v(unit)) return;
    const DeviceVector& norm = rope_.heads[head_of(unit) < num_q_ ? 0 : 1].norm;
    const int d = element_of_head(unit, row);
    early.norm = make_float2(load_element(norm.data, d, norm.element),
                             load_element(norm.data, d + product_.head_half, norm.element));
  }

  // Until the others have started, which is before anything is told them.
  __device__ void wait_for_others() const { ptx::wait_for_cluster(); }

  template <class Sum>
  __device__ void write(int token, int unit, int row, Early& early, const Sum& sum) const {
    early.pair = pair_of(unit, row, sum);
    if (is_v(unit)) return;
    const uint32_t to = ptx::shared_address(squares_of(token) + element_of_head(unit, row));
    for (int cta = 0; cta < ctas_of_head_; ++cta)
      ptx::store_to_cluster(ptx::address_in_cta(to, cta), squares_of_pair(early.pair.x, early.pair.y));
  }

  // Until all have told what they had to tell.
  __device__ void meet() const {
    __syncwarp();
    ptx::arrive_at_cluster();
    ptx::wait_for_cluster();
  }

  __device__ void finish(int token, int unit, int row, const Early& early) const {
    float2 pair = early.pair;
    if (!is_v(unit)) {
      const float scale = norm_scale(sum_of_squares(token, row), rope_.head_dim, rope_.eps);
      pair = make_float2(pair.x * scale * early.norm.x, pair.y * scale * early.norm.y);
    }
    put(token, unit, row, early, pair);
  }

 private:
  __device__ float* squares_of(int token) const { return squares_ + token * kMaxPairsOfHead; }

  // By the eight threads that have a token's outputs of a unit. In the order of norm_rope_kernel: lane l has
  // pairs l, l + 32, ..., and adds to them what the lane 16 further has, then 8, 4, 2 and 1.
  __device__ float sum_of_squares(int token, int row) const {
    constexpr int kLanes = 32;
    const float* const squares = squares_of(token);
    float of_lane[kLanes / kFeatures] = {};
#pragma unroll
    for (int i = 0; i < kLanes / kFeatures; ++i)
      for (int pair = i * kFeatures + row; pair < product_.head_half; pair += kLanes)
        of_lane[i] += squares[pair];
    float sum = (of_lane[0] + of_lane[2]) + (of_lane[1] + of_lane[3]);
    const uint32_t lanes = 0xffu << (threadIdx.x % kLanes & ~(kFeatures - 1u));
    for (int step = kFeatures / 2; step > 0; step /= 2) sum += __shfl_xor_sync(lanes, sum, step);
    return sum;
  }

  float* squares_;
  int ctas_of_head_;
};

}  // namespace attend::kernels::cuda
