// The sums of a tall tile: exchanged in the cluster, added and written as results.
#pragma once

#include <cstdint>
#include <type_traits>

#include "attend/kernels/cuda/element.cuh"
#include "attend/kernels/cuda/sm90/tall_ring.cuh"

namespace attend::kernels::cuda::sm90 {

// A thread of a consumer holds rows l / 4 and l / 4 + 8 of its warp's 16 rows of x, and of each eight of
// weights 2 (l % 4) and the next (wgmma_products.cuh.in): of a pair eight sums, its part of a square. Gated,
// the first four are gates and the others are what these multiply. The squares of a tile that several CTAs
// have parts of go to these in turn, where warps add the parts from the first on and write the results.
template <class T, int kGroups, int kGroupPairs, class Rings>
class TallSums {
  static constexpr int kWarps = Rings::kWarps;
  static constexpr bool kIsBf16 = std::is_same_v<T, __nv_bfloat16>;
  static constexpr int kAtOnce = 2;  // squares, whose residuals a warp asks for together

 public:
  using Sums = float[kGroups][8 * kGroupPairs];

  // Of a consumer's warp: its 16 rows of x, of the first group, and the first of its pairs of a tile.
  __device__ __forceinline__ TallSums(const Rings& rings, int column, int first_pair)
      : rings_(rings), params_(rings.params), column_(column), first_pair_(first_pair) {}

  // By all consumers: this CTA's sums of a tile, tiles in order, and each thread's sums of the squares of its
  // part of x. When a tile has parts, the warps that copy join it by a barrier of the cluster.
  __device__ __forceinline__ void put(int tile, const Sums& sums, float (&squared)[2]) const {
    if (params_.norm != nullptr)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        squared[half] += __shfl_xor_sync(0xffffffff, squared[half], 1);
        squared[half] += __shfl_xor_sync(0xffffffff, squared[half], 2);
      }
    if (params_.num_parts == 1)
      write_own(tile, sums, squared);
    else
      exchange(tile, sums, squared);
  }

 private:
  struct Square {
    float sums[2][2][2];  // half of the pair, row l / 4 or that + 8, feature
  };
  struct Residual {
    float2 values[2][2];  // as Square
  };

  // The column of 16 rows of x that this warp has of a group.
  __device__ __forceinline__ int column_of(int group) const { return column_ + group * 4; }
  __device__ __forceinline__ bool has_rows(int group) const {
    return column_of(group) * 16 < params_.num_rows;
  }
  __device__ __forceinline__ int num_squares() const {
    return (params_.num_rows + 15) / 16 * params_.tile_pairs;
  }
  __device__ __forceinline__ float scale_of(float squared) const {
    return params_.norm != nullptr
               ? 1.0f / sqrtf(squared / static_cast<float>(params_.in_features) + params_.norm_eps)
               : 1.0f;
  }

  __device__ __forceinline__ void write_own(int tile, const Sums& sums, const float (&squared)[2]) const {
    const float scales[2] = {scale_of(squared[0]), scale_of(squared[1])};
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (!has_rows(group)) return;
#pragma unroll
      for (int pair = 0; pair < kGroupPairs; ++pair) {
        Square square;
#pragma unroll
        for (int i = 0; i < 8; ++i) square.sums[i / 4][i / 2 % 2][i % 2] = sums[group][8 * pair + i];
        Residual residual;
        ask(tile, column_of(group), first_pair_ + pair, residual);
        write(tile, column_of(group), first_pair_ + pair, square, scales, residual);
      }
    }
  }

  // What a CTA receives: of its n-th square the parts one after another, the first half of each, then the
  // second; behind all squares the rows' sums of squares of each part.
  __device__ __forceinline__ uint32_t place_of(int n, int part) const {
    return rings_.sums() + (n * params_.num_parts + part) * kSquareBytes + 16 * lane_;
  }
  __device__ __forceinline__ uint32_t squared_place_of(int row, int part) const {
    return rings_.sums() + sums_bytes(params_) + 4 * (part * kMaxTallTokens + row);
  }

  __device__ __forceinline__ void exchange(int tile, const Sums& sums, const float (&squared)[2]) const {
    const int num_parts = params_.num_parts, part = rings_.share.part, total = num_squares();
    if (threadIdx.x == 0) {
      const int num_own = (total - part + num_parts - 1) / num_parts;
      const int num_columns = (params_.num_rows + 15) / 16;
      ptx::arrive_and_expect(
          rings_.sums_full(),
          num_parts * (num_own * kSquareBytes + (params_.norm != nullptr ? num_columns * 64 : 0)));
    }
    __syncwarp();
    // Every part's barriers are there, and nobody reads his rings any more.
    ptx::arrive_at_cluster_relaxed();
    ptx::wait_for_cluster();
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (!has_rows(group)) continue;
      send(column_of(group), sums[group]);
      if (params_.norm != nullptr && first_pair_ == 0 && lane_ % 4 < 2)
        send_squared(lane_ % 4 == 0 ? squared[0] : squared[1]);
    }
    const int warp = static_cast<int>(threadIdx.x) / 32;
    bool wait = true;
    for (int n = warp; n * num_parts + part < total || wait; n += kAtOnce * kWarps) {
      Residual residuals[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        visit(n + i * kWarps, [&](int column, int pair) { ask(tile, column, pair, residuals[i]); });
      if (wait) ptx::wait_for_cluster_phase(rings_.sums_full(), 0);
      wait = false;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        visit(n + i * kWarps, [&](int column, int pair) {
          Square square;
          add_parts(n + i * kWarps, square);
          const float scales[2] = {received_scale(column * 16 + lane_ / 4),
                                   received_scale(column * 16 + lane_ / 4 + 8)};
          write(tile, column, pair, square, scales, residuals[i]);
        });
    }
  }

  // Calls visit(column, pair) for this CTA's n-th square, if there is one.
  template <class Visit>
  __device__ __forceinline__ void visit(int n, const Visit& visit_square) const {
    const int square = n * params_.num_parts + rings_.share.part;
    if (square >= num_squares()) return;
    const int column = square / params_.tile_pairs;
    visit_square(column, square - column * params_.tile_pairs);
  }

  __device__ __forceinline__ void send(int column, const float (&sums)[8 * kGroupPairs]) const {
    const int first = column * params_.tile_pairs + first_pair_;
    int n = first / params_.num_parts, to_part = first - n * params_.num_parts;
#pragma unroll
    for (int pair = 0; pair < kGroupPairs; ++pair) {
      const uint32_t to = ptx::address_in_cta(place_of(n, rings_.share.part), to_part);
      const uint32_t full = ptx::address_in_cta(rings_.sums_full(), to_part);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = 8 * pair + 4 * half;
        ptx::store_async_16(to + half * kSquareBytes / 2, sums[i], sums[i + 1], sums[i + 2], sums[i + 3],
                            full);
      }
      if (++to_part < params_.num_parts) continue;
      to_part = 0;
      ++n;
    }
  }
  // Of row l / 4 (+ 8) of this warp's, to all parts.
  __device__ __forceinline__ void send_squared(float squared) const {
    const uint32_t place = squared_place_of(column_ * 16 + lane_ / 4 + lane_ % 4 * 8, rings_.share.part);
    for (int part = 0; part < params_.num_parts; ++part)
      ptx::store_async_4(ptx::address_in_cta(place, part), squared,
                         ptx::address_in_cta(rings_.sums_full(), part));
  }

  __device__ __forceinline__ void add_parts(int n, Square& square) const {
    square = {};
    for (int part = 0; part < params_.num_parts; ++part)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 bits = ptx::load_shared_16(place_of(n, part) + half * kSquareBytes / 2);
        square.sums[half][0][0] += __uint_as_float(bits.x);
        square.sums[half][0][1] += __uint_as_float(bits.y);
        square.sums[half][1][0] += __uint_as_float(bits.z);
        square.sums[half][1][1] += __uint_as_float(bits.w);
      }
  }
  __device__ __forceinline__ float received_scale(int row) const {
    float squared = 0.0f;
    if (params_.norm != nullptr)
      for (int part = 0; part < params_.num_parts; ++part)
        squared += __uint_as_float(ptx::load_shared_4(squared_place_of(row, part)));
    return scale_of(squared);
  }

  // Where the first of two results lies: of half a pair, and row l / 4 (+ 8) of a column. Not valid where
  // there is no such result.
  struct Place {
    bool valid;
    int64_t at;
  };
  __device__ __forceinline__ Place place_of_two(int tile, int column, int pair, int half, int i) const {
    const int first = (tile * params_.tile_pairs + pair) * kPairRows;
    const int row = column * 16 + lane_ / 4 + 8 * i;
    const int feature = (params_.gated ? first / 2 : first + 8 * half) + lane_ % 4 * 2;
    return {row < params_.num_rows && feature < params_.out_features, row * params_.out_stride + feature};
  }

  __device__ __forceinline__ void ask(int tile, int column, int pair, Residual& residual) const {
    if (!params_.accumulate) return;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (const Place place = place_of_two(tile, column, pair, half, i); place.valid)
          residual.values[half][i] = load_two(place.at);
  }

  // `residual` holds something when results are added.
  __device__ __forceinline__ void write(int tile, int column, int pair, const Square& square,
                                        const float (&scales)[2], const Residual& residual) const {
    const float2 zero = make_float2(0.0f, 0.0f);
    float2 bias[2] = {zero, zero};
    if (params_.bias.data != nullptr) {
      const int first = (tile * params_.tile_pairs + pair) * kPairRows;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        bias[half] = bias_of(params_.gated ? first / 2 + half * params_.out_features : first + 8 * half);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float2 results[2];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        results[half] = make_float2(square.sums[half][i][0] * scales[i] + bias[half].x,
                                    square.sums[half][i][1] * scales[i] + bias[half].y);
      if (params_.gated)
        results[0] = make_float2(silu(results[0].x) * results[1].x, silu(results[0].y) * results[1].y);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Place place = place_of_two(tile, column, pair, half, i);
        if (!place.valid || (params_.gated && half == 1)) continue;
        const float2 added = params_.accumulate ? residual.values[half][i] : zero;
        store_two(place.at, make_float2(results[half].x + added.x, results[half].y + added.y));
      }
    }
  }

  __device__ static float silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

  // Of this thread's two features of the eight from `first` on.
  __device__ __forceinline__ float2 bias_of(int first) const {
    const DeviceVector& bias = params_.bias;
    const int feature = first + lane_ % 4 * 2;
    if (feature >= (params_.gated ? 2 : 1) * params_.out_features) return make_float2(0.0f, 0.0f);
    if (bias.element == Element::kF32) return two_at<float2>(bias.data, feature);
    if (bias.element == Element::kF16) return __half22float2(two_at<__half2>(bias.data, feature));
    return __bfloat1622float2(two_at<__nv_bfloat162>(bias.data, feature));
  }
  // Elements `at`, an even number, and the next.
  template <class Two>
  __device__ static const Two& two_at(const void* data, int64_t at) {
    return static_cast<const Two*>(data)[at / 2];
  }
  __device__ __forceinline__ float2 load_two(int64_t at) const {
    if (params_.out_element == Element::kF32) return two_at<float2>(params_.out, at);
    if constexpr (kIsBf16)
      return __bfloat1622float2(two_at<__nv_bfloat162>(params_.out, at));
    else
      return __half22float2(two_at<__half2>(params_.out, at));
  }
  __device__ __forceinline__ void store_two(int64_t at, float2 two) const {
    if (params_.out_element == Element::kF32)
      static_cast<float2*>(params_.out)[at / 2] = two;
    else if constexpr (kIsBf16)
      static_cast<__nv_bfloat162*>(params_.out)[at / 2] = __float22bfloat162_rn(two);
    else
      static_cast<__half2*>(params_.out)[at / 2] = __float22half2_rn(two);
  }

  const Rings& rings_;
  const TallParams& params_;
  const int column_, first_pair_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
};

}  // namespace attend::kernels::cuda::sm90
