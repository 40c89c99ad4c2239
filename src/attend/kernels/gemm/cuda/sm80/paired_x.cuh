// x in the layout of products with quantized weights (skinny_quantized.cuh).
#pragma once

#include <cstdint>
#include <type_traits>

#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/copy_word.cuh"
#include "attend/kernels/gemm/cuda/sm80/skinny_outputs.cuh"
#include "attend/kernels/gemm/cuda/sm80/skinny_quantized_kernel.h"

namespace attend::kernels::cuda::sm80 {

// x in shared memory, normalized if there is a norm, in the order in which lanes read it: for each 32 inputs
// of a row, lane t of four has the 16 bytes of pairs that multiply a step's quantized values
// (dequantize.cuh).
template <class T, WeightFormat kFormat, int kTokens>
class PairedX {
  static constexpr bool kCanNorm = std::is_same_v<T, __nv_bfloat16>;
  static constexpr int kUnitInputs = 8, kUnitBytes = 16, kLanes = 4;
  static constexpr int kUnitsAtOnce = kTokens == 1 ? 4 : 1;

 public:
  // True if the sums of each kInt4GroupInputs inputs are needed: int4 in bf16 is multiplied as 128 + q, and
  // (128 + zero) times this sum is subtracted in float32. In f16, where the offset is 1024, this would lose
  // accuracy.
  static constexpr bool kSums = kFormat == WeightFormat::kInt4 && kCanNorm;

  static __host__ __device__ int shared_bytes(int in_features) {
    return kTokens * (in_features * 2 + (kSums ? in_features / kInt4GroupInputs * 4 : 0));
  }

  // Partial sums of squares of a thread's elements, per row.
  using Squares = float[kTokens];
  // Norm weights of a thread's units. No earlier kernel writes them.
  using Norm = uint4[kUnitsAtOnce];

  static __device__ __forceinline__ void load_norm(const SkinnyGemmParams& params, int first, Norm& norm) {
    if constexpr (kCanNorm) {
      if (params.norm == nullptr) return;
#pragma unroll
      for (int i = 0; i < kUnitsAtOnce; ++i) {
        const int unit = first + i * kSkinnyThreads;
        if (unit < params.in_features / kUnitInputs)
          norm[i] = load_unit(static_cast<const T*>(params.norm), unit);
      }
    }
  }

  // Loads the existing rows of x; called by all threads. `norm`: load_norm() of threadIdx.x. Calls
  // `meanwhile()` once, after issuing the first loads.
  template <class Meanwhile>
  static __device__ __forceinline__ void load_async(const SkinnyGemmParams& params, uint32_t to, Norm& norm,
                                                    Squares& squares, const Meanwhile& meanwhile) {
    const int num_units = params.in_features / kUnitInputs;
    const uint32_t to_sums = to + kTokens * params.in_features * 2;
    int first = static_cast<int>(threadIdx.x);
    bool is_first = true;
#pragma unroll 1
    do {
      uint4 x[kUnitsAtOnce][kTokens];
#pragma unroll
      for (int i = 0; i < kUnitsAtOnce; ++i) {
        const int unit = first + i * kSkinnyThreads;
        if (unit >= num_units) break;
#pragma unroll
        for (int token = 0; token < kTokens; ++token)
          if (token < params.num_rows)
            x[i][token] = load_unit(static_cast<const T*>(params.x) + token * params.x_stride, unit);
      }
      if (is_first)
        meanwhile();
      else
        load_norm(params, first, norm);
      is_first = false;
#pragma unroll
      for (int i = 0; i < kUnitsAtOnce; ++i) {
        const int unit = first + i * kSkinnyThreads;
        if (unit >= num_units) break;
#pragma unroll
        for (int token = 0; token < kTokens; ++token) {
          if (token >= params.num_rows) break;
          uint4 elements = x[i][token];
          if constexpr (kCanNorm)
            if (params.norm != nullptr) {
              squares[token] += sum_of_squares8(elements);
              elements = multiply_elements(elements, norm[i]);
            }
          ptx::st_shared_16(to + ((unit / kLanes * kTokens + token) * kLanes + unit % kLanes) * kUnitBytes,
                            paired(elements));
          if constexpr (kSums) {
            // Lanes that together hold a group of inputs.
            constexpr int kLanesPerGroup = kInt4GroupInputs / kUnitInputs;
            float sum = sum_elements(elements);
#pragma unroll
            for (int step = kLanesPerGroup / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
            if (unit % kLanesPerGroup == 0)
              ptx::st_shared_4(to_sums + (unit / kLanesPerGroup * kTokens + token) * 4, __float_as_uint(sum));
          }
        }
      }
      first += kUnitsAtOnce * kSkinnyThreads;
    } while (first < num_units);
  }

  // Returns this lane's values of 32 inputs, by index.
  static __device__ __forceinline__ uint4 take(uint32_t from, int inputs32) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int token = kTokens == 1 ? 0 : lane / kLanes;
    return ptx::ld_shared_16(from + ((inputs32 * kTokens + token) * kLanes + lane % kLanes) * kUnitBytes);
  }

  // Returns the sums of a group of inputs for this lane's tokens.
  static __device__ __forceinline__ float2 reduce_sums(uint32_t from, int in_features, int group) {
    const uint32_t sums = from + kTokens * in_features * 2 + group * kTokens * 4;
    if constexpr (kTokens == 1) {
      const float sum = __uint_as_float(ptx::ld_shared_4(sums));
      return make_float2(sum, sum);
    } else {
      const uint32_t lane_sums = sums + threadIdx.x % kLanes * 8;
      return make_float2(__uint_as_float(ptx::ld_shared_4(lane_sums)),
                         __uint_as_float(ptx::ld_shared_4(lane_sums + 4)));
    }
  }

 private:
  static __device__ __forceinline__ float sum_elements(const uint4& elements) {
    const auto* const pairs = reinterpret_cast<const __nv_bfloat162*>(&elements);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = __bfloat1622float2(pairs[i]);
      sum += pair.x + pair.y;
    }
    return sum;
  }
  // Loads a unit. int4: words with inputs (0, 1), (2, 3), (4, 5), (6, 7) of a lane's eight. 8 bits: (0, 1) of
  // the first and of the second four, then (2, 3).
  static __device__ __forceinline__ uint4 load_unit(const T* row, int unit) {
    if constexpr (kFormat == WeightFormat::kInt4) {
      return *reinterpret_cast<const uint4*>(row + unit * kUnitInputs);
    } else {
      const T* const from = row + unit / kLanes * 32 + unit % kLanes * 4;
      const uint2 low = *reinterpret_cast<const uint2*>(from),
                  high = *reinterpret_cast<const uint2*>(from + 16);
      return make_uint4(low.x, high.x, low.y, high.y);
    }
  }
  // Reorders the words. int4: inputs (0, 4), (1, 5), (2, 6), (3, 7). 8 bits: (0, 2), (1, 3) of each four.
  static __device__ __forceinline__ uint4 paired(const uint4& words) {
    return make_uint4(__byte_perm(words.x, words.z, 0x5410), __byte_perm(words.x, words.z, 0x7632),
                      __byte_perm(words.y, words.w, 0x5410), __byte_perm(words.y, words.w, 0x7632));
  }
};

}  // namespace attend::kernels::cuda::sm80
