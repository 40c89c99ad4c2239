// Epilogues of the skinny GEMM (skinny_gemm.cuh) of the QKV projection: norm of the heads, RoPE and the store
// into the cache. The two groups of an n-tile are the two halves of pairs that RoPE rotates.
#pragma once

#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/fused/cuda/qkv_kernel.h"
#include "attend/kernels/gemm/cuda/sm80/skinny_gemm.cuh"
#include "attend/kernels/norm_rope/cuda/rotate.cuh"

namespace attend::kernels::cuda {

// Positions of pairs in heads, and their destinations: q is written to out, k and v to the cache.
class QkvHeadLayout {
 public:
  // Loaded before the W of a pass.
  struct Rotation {
    float cos = 1.0f, sin = 0.0f;
    int slot = -1;
  };

  __device__ explicit QkvHeadLayout(const QkvParams& params)
      : product_(params.product),
        rope_(params.rope),
        num_q_(params.rope.heads[0].num_heads),
        num_k_(params.rope.heads[1].num_heads) {}

  __device__ int n_tiles_per_head() const { return product_.head_half / sm80::kFeatures; }
  __device__ int n_tile_head(int n_tile) const { return n_tile / n_tiles_per_head(); }
  __device__ int n_tile_in_head(int n_tile) const { return n_tile & (n_tiles_per_head() - 1); }
  __device__ int head_element(int n_tile, int row) const {
    return n_tile_in_head(n_tile) * sm80::kFeatures + row;
  }
  __device__ bool is_v(int n_tile) const { return n_tile_head(n_tile) >= num_q_ + num_k_; }

  __device__ void prefetch(int token, int n_tile, int row, Rotation& rotation) const {
    const int64_t position = rope_.positions[token];
    const int d = head_element(n_tile, row);
    rotation.cos = rope_.cos[position * rope_.cos_stride + d];
    rotation.sin = rope_.sin[position * rope_.sin_stride + d];
    rotation.slot = load_slot(rope_.store, token);
  }

  // Returns the product's pair after rounding to the dtype of out.
  template <class Sum>
  __device__ float2 output_pair(int n_tile, int row, const Sum& sum) const {
    const int half = product_.head_half;
    const int feature = n_tile_head(n_tile) * 2 * half + head_element(n_tile, row);
    return make_float2(rounded(sum(0, feature), product_.out_element),
                       rounded(sum(1, feature + half), product_.out_element));
  }

  // Rotates a pair, unless it belongs to v, and stores it.
  __device__ void put(int token, int n_tile, int row, const Rotation& rotation, float2 pair) const {
    const int head = n_tile_head(n_tile), d = head_element(n_tile, row), half = product_.head_half;
    const bool v = is_v(n_tile);
    if (!v) pair = rotated(pair.x, pair.y, rotation.cos, rotation.sin);
    if (head < num_q_) {
      const int64_t to = token * product_.out_stride + head * 2 * half + d;
      store_element(product_.out, to, product_.out_element, pair.x);
      store_element(product_.out, to + half, product_.out_element, pair.y);
      return;
    }
    const CacheRow cache(rope_.store, v ? 1 : 0, rotation.slot, head - num_q_ - (v ? num_k_ : 0));
    // The cache stores the values that a read of k would return.
    cache.write(d, rounded(pair.x, product_.out_element));
    cache.write(d + half, rounded(pair.y, product_.out_element));
  }

 protected:
  const sm80::SkinnyGemmParams& product_;
  const NormRopeParams& rope_;
  int num_q_, num_k_;
};

class HeadsEpilogue : public QkvHeadLayout {
 public:
  static constexpr bool kHeads = true, kClusterSync = false;
  using Prefetched = Rotation;
  using QkvHeadLayout::QkvHeadLayout;

  template <class Sum>
  __device__ void write(int token, int n_tile, int row, const Prefetched& prefetched, const Sum& sum) const {
    put(token, n_tile, row, prefetched, output_pair(n_tile, row, sum));
  }
};

// Applies an RMSNorm to heads of q and k before they are rotated: the CTAs of a cluster, which share a head,
// exchange the squares of its pairs.
class NormalizedHeadsEpilogue : public QkvHeadLayout {
 public:
  static constexpr bool kHeads = true, kClusterSync = true;
  static constexpr int kMaxPairsPerHead = kMaxQkvHalf;
  struct Prefetched : Rotation {
    float2 norm = make_float2(1.0f, 1.0f);
    float2 pair = make_float2(0.0f, 0.0f);
  };

  // `squares`: [rows, kMaxPairsPerHead] of shared memory, at the same address in every CTA.
  __device__ NormalizedHeadsEpilogue(const QkvParams& params, float* squares)
      : QkvHeadLayout(params), squares_(squares), ctas_per_head_(params.ctas_per_head) {
    ptx::cluster_arrive_relaxed();
  }

  __device__ void prefetch(int token, int n_tile, int row, Prefetched& prefetched) const {
    QkvHeadLayout::prefetch(token, n_tile, row, prefetched);
    if (is_v(n_tile)) return;
    const DeviceVector& norm = rope_.heads[n_tile_head(n_tile) < num_q_ ? 0 : 1].norm;
    const int d = head_element(n_tile, row);
    prefetched.norm = make_float2(load_element(norm.data, d, norm.element),
                                  load_element(norm.data, d + product_.head_half, norm.element));
  }

  // Waits until the other CTAs have started; nothing may be sent before.
  __device__ void wait_for_cluster() const { ptx::cluster_wait(); }

  template <class Sum>
  __device__ void write(int token, int n_tile, int row, Prefetched& prefetched, const Sum& sum) const {
    prefetched.pair = output_pair(n_tile, row, sum);
    if (is_v(n_tile)) return;
    const uint32_t to = ptx::shared_address(token_squares(token) + head_element(n_tile, row));
    for (int cta = 0; cta < ctas_per_head_; ++cta)
      ptx::st_shared_cluster(ptx::mapa(to, cta), pair_squares(prefetched.pair.x, prefetched.pair.y));
  }

  // Waits until all squares have arrived.
  __device__ void cluster_sync() const {
    __syncwarp();
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }

  __device__ void finish(int token, int n_tile, int row, const Prefetched& prefetched) const {
    float2 pair = prefetched.pair;
    if (!is_v(n_tile)) {
      const float scale = norm_scale(sum_of_squares(token, row), rope_.head_dim, rope_.eps);
      pair = make_float2(pair.x * scale * prefetched.norm.x, pair.y * scale * prefetched.norm.y);
    }
    put(token, n_tile, row, prefetched, pair);
  }

 private:
  __device__ float* token_squares(int token) const { return squares_ + token * kMaxPairsPerHead; }

  // Called by the eight threads with a token's outputs of an n-tile. Sums in the order of norm_rope_kernel:
  // lane l has pairs l, l + 32, ..., and adds the values of the lane 16 further, then 8, 4, 2 and 1.
  __device__ float sum_of_squares(int token, int row) const {
    constexpr int kLanes = 32;
    const float* const squares = token_squares(token);
    float lane_sums[kLanes / sm80::kFeatures] = {};
#pragma unroll
    for (int i = 0; i < kLanes / sm80::kFeatures; ++i)
#pragma unroll
      for (int first = i * sm80::kFeatures; first < kMaxPairsPerHead; first += kLanes)
        if (first + row < product_.head_half) lane_sums[i] += squares[first + row];
    float sum = (lane_sums[0] + lane_sums[2]) + (lane_sums[1] + lane_sums[3]);
    const uint32_t lanes = 0xffu << (threadIdx.x % kLanes & ~(sm80::kFeatures - 1u));
    for (int step = sm80::kFeatures / 2; step > 0; step /= 2) sum += __shfl_xor_sync(lanes, sum, step);
    return sum;
  }

  float* squares_;
  int ctas_per_head_;
};

}  // namespace attend::kernels::cuda
