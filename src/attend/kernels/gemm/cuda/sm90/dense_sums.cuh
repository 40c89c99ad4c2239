// The sums of a tile: exchanged in the cluster, added and written as results.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/gemm/cuda/sm90/dense_norm.cuh"

namespace attend::kernels::cuda::sm90 {

// A thread of a consumer holds rows l / 4 and l / 4 + 8 of its warp's 16, and of each group of eight tokens
// 2 (l % 4) and the next: four sums a group (wgmma_products.cuh.in). Gated, the two rows are gate and up of
// one feature. A square is two groups of a warp; squares go to the CTAs of the cluster in turn, where warps
// add them from rank 0 on and write the results.
template <int kWarpgroups, int kTokens>
class DenseSums {
  using Ring = DenseRing<kWarpgroups, kTokens>;
  static constexpr int kWarps = Ring::kConsumerWarps;
  static constexpr int kColumns = kTokens / 16;  // of squares
  static constexpr int kFloatsOfLane = 8;        // of a square
  static constexpr int kHalfSquareBytes = 512;   // four floats of 32 lanes

  // Where a square's results go.
  struct Place {
    int row, token;  // the first of 16; gated, rows are of gate and up
  };
  // What a lane adds to its half of a row of a square, and multiplies it with.
  struct Early {
    uint4 before, norm_weight;
  };

 public:
  using Sums = float[kTokens / 2];

  __device__ __forceinline__ DenseSums(const Ring& ring, char* shared)
      : ring_(ring),
        params_(ring.params),
        square_(reinterpret_cast<float*>(shared + (ring.squares - ring.tokens) + warp_ * Ring::kSquareBytes)),
        scales_(reinterpret_cast<const float*>(shared + (ring.scales - ring.tokens))) {}

  // By all consumers, before the products of a tile, behind which it would come late: what their warps' first
  // squares are added to.
  __device__ __forceinline__ void ask(int tile) {
    if (first_square() < num_squares()) early_ = asked(tile, first_square());
  }

  // By all consumers: this CTA's sums of a tile, tiles in order.
  __device__ __forceinline__ void put(int tile, const Sums& sums) {
    const bool alone = params_.cluster_size == 1;
    if (alone) {
      keep(sums);
      __syncwarp();
    } else {
      send(sums);
      ptx::wait_for_cluster_phase(ring_.sums_full(), parity_);
    }
    if (params_.norm.squares != nullptr) ptx::wait_for_phase(ring_.scales_full(), 0);
    const int step = alone ? params_.tile_pairs : kWarps << params_.cluster_shift;
    for (int square = first_square(); square < num_squares(); square += step)
      write(tile, square, square == first_square() ? early_ : asked(tile, square));
    __syncwarp();
    const bool is_last = tile + ring_.share.num_clusters >= params_.num_tiles;
    if (!alone && !is_last && lane_ < params_.cluster_size)
      ptx::arrive_in_cluster_relaxed(ptx::address_in_cta(ring_.sums_empty(), lane_));
    parity_ ^= 1;
    first_ = false;
  }

 private:
  // Whether this warp's rows are of the tile.
  __device__ __forceinline__ bool has_rows() const { return warp_ < params_.tile_pairs; }
  // Columns of squares that hold tokens, but at least so many.
  __device__ __forceinline__ int num_columns_used() const {
    return max(kMinColumns, (params_.num_rows + 15) / 16);
  }

  __device__ __forceinline__ int num_squares() const { return num_columns_used() * params_.tile_pairs; }
  // That this warp writes.
  __device__ __forceinline__ int first_square() const {
    if (params_.cluster_size == 1 && !has_rows()) return num_squares();
    return (warp_ << params_.cluster_shift) + ring_.share.rank;
  }
  __device__ __forceinline__ Place place_in(int tile, int square) const {
    const int column = square / params_.tile_pairs, pair = square - column * params_.tile_pairs;
    return {.row = (tile * params_.tile_pairs + pair) * kPairRows, .token = column * 16};
  }

  // Where this lane's floats of a square from the CTA of a rank lie in the CTA that writes the square.
  __device__ __forceinline__ uint32_t place_of(int square, int rank) const {
    return ring_.sums +
           2 * kHalfSquareBytes * ((square >> params_.cluster_shift << params_.cluster_shift) + rank) +
           16 * lane_;
  }

  // Without a cluster a warp writes its own squares.
  __device__ __forceinline__ void keep(const Sums& sums) const {
    if (!has_rows()) return;
#pragma unroll
    for (int column = 0; column < kColumns; ++column)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int first = column * kFloatsOfLane + half * 4;
        ptx::store_shared_16(place_of(column * params_.tile_pairs + warp_, 0) + half * kHalfSquareBytes,
                             sums[first], sums[first + 1], sums[first + 2], sums[first + 3]);
      }
  }

  __device__ __forceinline__ void send(const Sums& sums) const {
    const int last_rank = params_.cluster_size - 1, num_columns = num_columns_used();
    if (threadIdx.x == 0) {
      // Squares of this rank, from each rank.
      const int num_squares =
          (num_columns * params_.tile_pairs - ring_.share.rank + last_rank) >> params_.cluster_shift;
      ptx::arrive_and_expect(ring_.sums_full(), (2 * kHalfSquareBytes * num_squares)
                                                    << params_.cluster_shift);
    }
    if (!has_rows()) return;
    if (!first_) ptx::wait_for_cluster_phase(ring_.sums_empty(), parity_ ^ 1);
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      if (column >= num_columns) continue;
      const int square = column * params_.tile_pairs + warp_, to_rank = square & last_rank;
      const uint32_t to = ptx::address_in_cta(place_of(square, ring_.share.rank), to_rank);
      const uint32_t full = ptx::address_in_cta(ring_.sums_full(), to_rank);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int first = column * kFloatsOfLane + half * 4;
        ptx::store_async_16(to + half * kHalfSquareBytes, sums[first], sums[first + 1], sums[first + 2],
                            sums[first + 3], full);
      }
    }
  }

  // By one warp.
  __device__ __forceinline__ void write(int tile, int square, const Early& early) const {
    float sums[kFloatsOfLane] = {};
    for (int rank = 0; rank < params_.cluster_size; ++rank)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 bits = ptx::load_shared_16(place_of(square, rank) + half * kHalfSquareBytes);
        sums[half * 4] += __uint_as_float(bits.x);
        sums[half * 4 + 1] += __uint_as_float(bits.y);
        sums[half * 4 + 2] += __uint_as_float(bits.z);
        sums[half * 4 + 3] += __uint_as_float(bits.w);
      }
    const Place place = place_in(tile, square);
    if (params_.norm.squares != nullptr)
#pragma unroll
      for (int i = 0; i < kFloatsOfLane; ++i) sums[i] *= scales_[place.token + token_of(i)];
    if (params_.gated)
      write_gated(place, sums);
    else
      write_plain(place, sums, early);
  }

  // 16 features of 16 tokens. Half a row of the square for each lane.
  __device__ __forceinline__ void write_plain(const Place& place, const float (&sums)[kFloatsOfLane],
                                              const Early& early) const {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kFloatsOfLane; ++i)
      square_[token_of(i) * Ring::kSquareStride + lane_ / 4 + i / 2 % 2 * 8] = sums[i];
    __syncwarp();
    const int token = place.token + lane_ / 2, feature = place.row + lane_ % 2 * 8;
    if (!is_out(token, feature)) return;
    float group[kGroupElements];
    read_square(lane_ / 2, lane_ % 2 * 8, group);
    if (params_.bias.data != nullptr) {
      float bias[kGroupElements];
      load_some(params_.bias.data, feature, params_.bias.element, kGroupElements, bias);
      add(group, bias);
    }
    if (params_.accumulate) add_before(token, feature, early, group);
    put_group(token, feature, group);
    if (params_.next_norm.weight != nullptr)
      begin_norm(params_.next_norm, token, feature, group, early.norm_weight);
  }

  // 8 features of 16 tokens: gate and up are the lane's own. A row of the square for each of 16 lanes.
  __device__ __forceinline__ void write_gated(const Place& place, const float (&sums)[kFloatsOfLane]) const {
    const int feature = place.row / 2;
    if (feature >= params_.out_features) return;
    float gate_bias = 0.0f, up_bias = 0.0f;
    if (const DeviceVector& bias = params_.bias; bias.data != nullptr) {
      gate_bias = load_element(bias.data, feature + lane_ / 4, bias.element);
      up_bias = load_element(bias.data, params_.out_features + feature + lane_ / 4, bias.element);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kFloatsOfLane; ++i) {
      if (i / 2 % 2 == 1) continue;  // up
      const float gate = sums[i] + gate_bias;
      square_[token_of(i) * Ring::kSquareStride + lane_ / 4] =
          gate / (1.0f + expf(-gate)) * (sums[i + 2] + up_bias);
    }
    __syncwarp();
    const int token = place.token + lane_;
    if (lane_ >= 16 || !is_out(token, feature)) return;
    float group[kGroupElements];
    read_square(lane_, 0, group);
    put_group(token, feature, group);
  }

  // Of a square, that float i of this lane is of.
  __device__ __forceinline__ int token_of(int i) const { return i / 4 * 8 + lane_ % 4 * 2 + i % 2; }

  __device__ bool is_out(int token, int feature) const {
    return token < params_.num_rows && feature < params_.out_features;
  }
  __device__ int64_t out_at(int token, int feature) const { return token * params_.out_stride + feature; }

  // Eight features of a row of the square, from `column` on.
  __device__ __forceinline__ void read_square(int row, int column, float (&group)[kGroupElements]) const {
#pragma unroll
    for (int i = 0; i < kGroupElements; i += 4) {
      const auto four = *reinterpret_cast<const float4*>(square_ + row * Ring::kSquareStride + column + i);
      group[i] = four.x;
      group[i + 1] = four.y;
      group[i + 2] = four.z;
      group[i + 3] = four.w;
    }
  }

  // Whether what out holds is asked for early.
  __device__ __forceinline__ bool asks_before() const {
    return params_.accumulate && params_.out_aligned && params_.out_element != Element::kF32;
  }
  __device__ __forceinline__ Early asked(int tile, int square) const {
    Early early{};
    const Place place = place_in(tile, square);
    const int token = place.token + lane_ / 2, feature = place.row + lane_ % 2 * 8;
    if (params_.gated || !is_out(token, feature)) return early;
    if (asks_before()) early.before = load_16_bytes(params_.out, out_at(token, feature));
    if (params_.next_norm.weight != nullptr)
      early.norm_weight = load_16_bytes(params_.next_norm.weight, feature);
    return early;
  }
  // Eight elements of 16 bits.
  __device__ static uint4 load_16_bytes(const void* data, int64_t i) {
    return *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(data) + i);
  }

  __device__ __forceinline__ void add_before(int token, int feature, const Early& early,
                                             float (&group)[kGroupElements]) const {
    float before[kGroupElements];
    if (!asks_before())
      load_some(params_.out, out_at(token, feature), params_.out_element, kGroupElements, before);
    else if (params_.out_element == Element::kBF16)
      load_16_bit_group(reinterpret_cast<const __nv_bfloat16*>(&early.before), before);
    else
      load_16_bit_group(reinterpret_cast<const __half*>(&early.before), before);
    add(group, before);
  }
  __device__ __forceinline__ void put_group(int token, int feature,
                                            const float (&group)[kGroupElements]) const {
    const int64_t to = out_at(token, feature);
    if (params_.out_aligned)
      store_group(params_.out, to, params_.out_element, group);
    else
      store_some(params_.out, to, params_.out_element, kGroupElements, group);
  }

  __device__ static void add(float (&group)[kGroupElements], const float (&added)[kGroupElements]) {
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) group[i] += added[i];
  }

  const Ring& ring_;
  const DenseParams& params_;
  const int warp_ = static_cast<int>(threadIdx.x) / 32, lane_ = static_cast<int>(threadIdx.x) % 32;
  float* square_;        // of this warp
  const float* scales_;  // of the rows
  Early early_{};
  uint32_t parity_ = 0;  // of this tile's exchange
  bool first_ = true;
};

}  // namespace attend::kernels::cuda::sm90
