// Rows of the state of a gated delta rule in the registers of lanes, and their step by one token.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attend/kernels/recurrent/cuda/common/delta_gates.cuh"

namespace attend::kernels::cuda {

inline constexpr int kDeltaRowsPerLane = 4;
inline constexpr unsigned kAllDeltaLanes = 0xffffffffu;

// Four elements of a row, as they are in memory.
template <class T>
struct Quad {
  T elements[4];
};

// A lane's elements of a key or query of the next token: quads `sub`, `sub` + kLanes, ... of the head.
template <class T, int kLanes, int kQuads, bool kAligned>
struct RawRow {
  Quad<T> quads[kQuads];

  __device__ void load(const T* row, int sub, int dim) {
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
      const int first = (j * kLanes + sub) * 4;
      if constexpr (!kAligned) {
#pragma unroll
        for (int i = 0; i < 4; ++i) quads[j].elements[i] = first + i < dim ? row[first + i] : T(0.0f);
      } else if constexpr (sizeof(T) == 4) {
        *reinterpret_cast<uint4*>(&quads[j]) =
            first < dim ? *reinterpret_cast<const uint4*>(row + first) : uint4{};
      } else {
        *reinterpret_cast<uint2*>(&quads[j]) =
            first < dim ? *reinterpret_cast<const uint2*>(row + first) : uint2{};
      }
    }
  }
  __device__ void convert(float (&values)[kQuads][4]) const {
#pragma unroll
    for (int j = 0; j < kQuads; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) values[j][i] = static_cast<float>(quads[j].elements[i]);
  }
};

// Sum over the lanes of a row, the same in all of them.
template <int kLanes>
__device__ float row_sum(float value) {
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) value += __shfl_xor_sync(kAllDeltaLanes, value, step);
  return value;
}

// Sums p and u over the lanes of a row. Lane i of each 8 returns p[i] if i < 4, otherwise u[i - 4].
template <int kLanes>
__device__ float sum_to_lanes(const float (&p)[kDeltaRowsPerLane], const float (&u)[kDeltaRowsPerLane],
                              int sub) {
  const bool high = (sub & 4) != 0, odd_pair = (sub & 2) != 0, odd = (sub & 1) != 0;
  float four[4], two[2];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    four[i] = (high ? u[i] : p[i]) + __shfl_xor_sync(kAllDeltaLanes, high ? p[i] : u[i], 4);
#pragma unroll
  for (int i = 0; i < 2; ++i)
    two[i] = (odd_pair ? four[i + 2] : four[i]) +
             __shfl_xor_sync(kAllDeltaLanes, odd_pair ? four[i] : four[i + 2], 2);
  float sum = (odd ? two[1] : two[0]) + __shfl_xor_sync(kAllDeltaLanes, odd ? two[0] : two[1], 1);
  if constexpr (kLanes == 16) sum += __shfl_xor_sync(kAllDeltaLanes, sum, 8);
  return sum;
}

// Rows of the state in the registers of a lane.
template <int kLanes, int kQuads, bool kAligned>
struct StateRows {
  float rows[kDeltaRowsPerLane][kQuads][4];

  __device__ void clear() {
#pragma unroll
    for (auto& row : rows)
#pragma unroll
      for (auto& quad : row)
#pragma unroll
        for (float& x : quad) x = 0.0f;
  }
  // `head`: the first row of this lane.
  __device__ void load(const float* head, int num_rows, int sub, int dim) {
    clear();
#pragma unroll
    for (int r = 0; r < kDeltaRowsPerLane; ++r)
#pragma unroll
      for (int j = 0; j < kQuads; ++j) {
        const int first = (j * kLanes + sub) * 4;
        if (r >= num_rows || first >= dim) continue;
        const float* const from = head + int64_t{r} * dim + first;
        if constexpr (kAligned) {
          const float4 quad = __ldcg(reinterpret_cast<const float4*>(from));
          rows[r][j][0] = quad.x, rows[r][j][1] = quad.y, rows[r][j][2] = quad.z, rows[r][j][3] = quad.w;
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (first + i < dim) rows[r][j][i] = __ldcg(from + i);
        }
      }
  }
  __device__ void store(float* head, int num_rows, int sub, int dim) const {
#pragma unroll
    for (int r = 0; r < kDeltaRowsPerLane; ++r)
#pragma unroll
      for (int j = 0; j < kQuads; ++j) {
        const int first = (j * kLanes + sub) * 4;
        if (r >= num_rows || first >= dim) continue;
        float* const to = head + int64_t{r} * dim + first;
        const float* const quad = rows[r][j];
        if constexpr (kAligned) {
          __stcg(reinterpret_cast<float4*>(to), make_float4(quad[0], quad[1], quad[2], quad[3]));
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (first + i < dim) __stcg(to + i, quad[i]);
        }
      }
  }

  // Steps the rows of a head by one token, as in recurrent.h, and returns the output of row `sub` % 4 of
  // this lane's in lanes with 4 <= sub < 8. q and k: raw elements of this lane's columns; decays: of the
  // columns, with kPerChannel; v: of row `sub` % 4. The order of all sums depends on kLanes and kQuads only.
  template <bool kPerChannel>
  __device__ __forceinline__ float step(const float (&q)[kQuads][4], const float (&k)[kQuads][4],
                                        const float (&decays)[kQuads][4], float v, float decay, float beta,
                                        float q_scale, int sub) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float qq = 0.0f, kk = 0.0f, kq = 0.0f, p[kDeltaRowsPerLane] = {}, u[kDeltaRowsPerLane] = {};
#pragma unroll
    for (int j = 0; j < kQuads; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        qq = fmaf(q[j][i], q[j][i], qq);
        kk = fmaf(k[j][i], k[j][i], kk);
        kq = fmaf(k[j][i], q[j][i], kq);
        float key = k[j][i], query = q[j][i];
        if constexpr (kPerChannel) key = __fmul_rn(key, decays[j][i]), query = __fmul_rn(query, decays[j][i]);
#pragma unroll
        for (int r = 0; r < kDeltaRowsPerLane; ++r) {
          p[r] = fmaf(rows[r][j][i], key, p[r]);
          u[r] = fmaf(rows[r][j][i], query, u[r]);
        }
      }
    const float k_norm = delta_norm(row_sum<kLanes>(kk)),
                q_norm = __fmul_rn(q_scale, delta_norm(row_sum<kLanes>(qq)));
    kq = __fmul_rn(__fmul_rn(row_sum<kLanes>(kq), k_norm), q_norm);
    const float sum = sum_to_lanes<kLanes>(p, u, sub);
    // In lanes with p, this is delta of the lane's own row; the lanes with u receive it from them.
    const float delta = __fmul_rn(beta, fmaf(-decay, __fmul_rn(sum, k_norm), v));
    const float delta_of_row = __shfl_xor_sync(kAllDeltaLanes, delta, 4);
    const float out = fmaf(__fmul_rn(decay, q_norm), sum, __fmul_rn(kq, delta_of_row));
    const float scaled = __fmul_rn(delta, k_norm);
#pragma unroll
    for (int r = 0; r < kDeltaRowsPerLane; ++r) {
      const float step = __shfl_sync(kAllDeltaLanes, scaled, lane / kLanes * kLanes + r);
#pragma unroll
      for (int j = 0; j < kQuads; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          rows[r][j][i] = fmaf(step, k[j][i], __fmul_rn(kPerChannel ? decays[j][i] : decay, rows[r][j][i]));
    }
    return out;
  }
};

}  // namespace attend::kernels::cuda
