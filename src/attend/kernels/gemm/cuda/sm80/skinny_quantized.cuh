// Skinny GEMM of quantized weights: out = x W^T for up to 8 rows of x on mma.sync, with W dequantized in
// registers.
//
//   tile        all rows of x (kTokens = 1 or 8) x a CTA's range of output features, kGroups groups of 8 (8
//               or 16) between two barriers; a K-block is 128 bytes of a row: 128 inputs in 8 bits, 256 in
//               int4
//   warps       8, all alike: each loads its own K-blocks with cp.async, two groups of rows at a time, and
//               multiplies them with mma.m16n8k16, with W as operand A
//   registers   128 at most: two CTAs fit on an SM
//   shared      partial sums; all of x, in the order in which lanes read it; kStages stages per warp of 2 KB
//               of quantized values and 128 bytes of scales and zeros
//   bytes       W once from memory; x once per CTA, from L2
//   bound       reading W; dequantization needs 2 (int4) and 3.4 (fp8) instructions per value, within the
//               3.5 and 7 that can issue while W is read
//
// Operands are exact. int4 in bf16 uses 128 + q, and the offset is subtracted in float32. Sums over a group's
// inputs, at most a K-block, are multiplied by its scale in float32. K-blocks are distributed and partial
// sums added like in skinny_gemm.cuh, so a row's bits do not depend on other rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/gemm/cuda/common/dequantize.cuh"
#include "attend/kernels/gemm/cuda/sm80/paired_x.cuh"
#include "attend/kernels/gemm/cuda/sm80/quantized_pipeline.cuh"
#include "attend/kernels/gemm/cuda/sm80/skinny_outputs.cuh"
#include "attend/kernels/gemm/cuda/sm80/skinny_quantized_kernel.h"

namespace attend::kernels::cuda::sm80 {

template <WeightFormat kFormat>
inline constexpr int kRowInputs = QuantizedBlock<kFormat>::kFourBits ? kInt4RowInputs : kByteRowInputs;

// Consumer. `Epilogue`: see SkinnyOutputs.
template <class T, WeightFormat kFormat, int kGroups, int kTokens, int kStages, class Epilogue>
class SkinnyQuantizedCta : SkinnyOutputs<kGroups, kTokens, Epilogue> {
  using Outputs = SkinnyOutputs<kGroups, kTokens, Epilogue>;
  using Outputs::kGroupOutputs, Outputs::kPartialSumBytes;
  using Outputs::params_, Outputs::range_, Outputs::partial_, Outputs::row_squares_, Outputs::warp_,
      Outputs::lane_;
  using Pipeline = QuantizedPipeline<kFormat, kStages, Epilogue::kHeads>;
  using X = PairedX<T, kFormat, kTokens>;
  static constexpr int kPiecesPerHalf = kPieces / 2;
  static_assert(kGroups % 2 == 0);

 public:
  static int shared_bytes(int in_features) {
    return kPartialSumBytes + Pipeline::kSharedBytes + X::shared_bytes(in_features);
  }

  __device__ SkinnyQuantizedCta(const SkinnyGemmParams& product, const QuantizedWeight& weight,
                                const Epilogue& epilogue, char* shared)
      : Outputs(product, epilogue, shared, kRowInputs<kFormat>),
        weight_(weight),
        pipeline_(product, weight, range_, ptx::shared_address(shared) + kPartialSumBytes),
        x_(ptx::shared_address(shared) + kPartialSumBytes + Pipeline::kSharedBytes) {}

  // W does not depend on the previous kernel, so the pipeline fills while that kernel finishes.
  __device__ __forceinline__ void run() {
    typename X::Norm norm;
    X::load_norm(params_, static_cast<int>(threadIdx.x), norm);
    pipeline_.start();
    ptx::griddepcontrol_wait();
    typename X::Squares squares = {};
    X::load_async(params_, x_, norm, squares, [&] { pipeline_.start_rest(); });
    ptx::launch_dependents();
    store_squares(squares);
    __syncthreads();
    const float norm_scale = this->get_norm_scale(static_cast<int>(threadIdx.x) / kFeatures % kTokens);
    for (int n_tile = range_.begin; n_tile < range_.end; n_tile += range_.at_once) {
      typename Outputs::Prefetched prefetched;
      this->prefetch(n_tile, prefetched);
      const int num_pairs = pipeline_.num_pairs(min(range_.at_once, range_.end - n_tile));
#pragma unroll 1
      for (int pair = 0; pair < num_pairs; ++pair) {
        float sums[4] = {};
#pragma unroll 1
        for (int k_block = warp_; k_block < range_.num_k_blocks; k_block += kSkinnyWarps)
          multiply(k_block, sums);
        store_partial_sums(pair, sums);
      }
      __syncthreads();
      this->write(n_tile, prefetched, [&](int) { return norm_scale; });
      __syncthreads();
    }
  }

 private:
  // Multiplies a stage. A lane has the sums of rows l / 4 of both groups, for tokens 2 (l % 4) and 2 (l % 4)
  // + 1.
  __device__ __forceinline__ void multiply(int k_block, float (&sums)[4]) {
    const typename Pipeline::Stage stage = pipeline_.wait();
    float scales[2][2];  // [halves, groups]
    uint32_t zeros[2][2];
    load_scales(stage, scales, zeros);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t codes[2][kPiecesPerHalf];
#pragma unroll
      for (int group = 0; group < 2; ++group)
        ptx::ldmatrix_x4(codes[group], Pipeline::group(Pipeline::half(stage.codes, half), group));
      float products[4] = {};
      if constexpr (X::kSums) {
        const float2 x_sums = X::reduce_sums(x_, params_.in_features, 2 * k_block + half);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          products[i] = -__uint_as_float(zeros[half][i / 2]) * (i % 2 == 0 ? x_sums.x : x_sums.y);
      }
#pragma unroll
      for (int piece = 0; piece < kPiecesPerHalf; ++piece)
        multiply_piece(k_block, half * kPiecesPerHalf + piece, {codes[0][piece], codes[1][piece]},
                       zeros[half], products);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[i] = fmaf(products[i], scales[half][i / 2], sums[i]);
    }
    pipeline_.refill();
  }

  struct Words {
    uint32_t group_scales[2];
  };
  // Multiplies one word of quantized values of both rows.
  __device__ __forceinline__ void multiply_piece(int k_block, int piece, const Words& words,
                                                 const uint32_t (&zeros)[2], float (&products)[4]) const {
    constexpr bool kBytes = !QuantizedBlock<kFormat>::kFourBits;
    constexpr int kPiecesPer32Inputs = kBytes ? 2 : 1, kSteps = kBytes ? 1 : 2;
    constexpr int kBlockInputs32 = kRowInputs<kFormat> / 32;
    const uint4 x = X::take(x_, k_block * kBlockInputs32 + piece / kPiecesPer32Inputs);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t factors[4];
      dequantize_step_pairs(words.group_scales[0], step, zeros[0], factors[0], factors[2]);
      dequantize_step_pairs(words.group_scales[1], step, zeros[1], factors[1], factors[3]);
      const bool second = kBytes ? piece % 2 == 1 : step == 1;
      ptx::mma_m16n8k16(products, factors, second ? x.z : x.x, second ? x.w : x.y, T{});
    }
  }

  // Dequantizes a step's pairs of a word; with X::kSums to 128 + q.
  static __device__ __forceinline__ void dequantize_step_pairs(uint32_t word, int step, uint32_t zero,
                                                               uint32_t& first, uint32_t& second) {
    if constexpr (X::kSums) {
      first = shifted_int4<T>(word >> (8 * step));
      second = shifted_int4<T>(word >> (8 * step + 4));
    } else {
      dequantize_step<T, kFormat>(word, step, zero, first, second);
    }
  }

  // Loads `scales` and `zeros` of this lane's rows, per half of the K-block and group. Zeros have the format
  // of dequantize_int4(); with X::kSums they are 128 + zero in float32.
  __device__ __forceinline__ void load_scales(const typename Pipeline::Stage& stage, float (&scales)[2][2],
                                              uint32_t (&zeros)[2][2]) const {
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      const uint32_t word = Pipeline::scales(stage, group);
      if constexpr (!QuantizedBlock<kFormat>::kFourBits) {
        scales[0][group] = scales[1][group] = __uint_as_float(word);
        zeros[0][group] = zeros[1][group] = 0;
      } else {
        const float2 both = weight_.scale_element == Element::kBF16
                                ? __bfloat1622float2(bits_to_pair<__nv_bfloat162>(word))
                                : __half22float2(bits_to_pair<__half2>(word));
        scales[0][group] = both.x;
        scales[1][group] = both.y;
        // A word of zeros covers two K-blocks. A warp multiplies every eighth K-block.
        const uint32_t four = weight_.zeros != nullptr ? Pipeline::zeros(stage, group) : 0x08080808u;
        const uint32_t first = warp_ % 2 * 2;
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half) {
          zeros[half][group] = shifted_zero_at<T>(four, first + half);
          if constexpr (X::kSums) zeros[half][group] &= 0xffff0000u;
        }
      }
    }
  }

  __device__ __forceinline__ void store_squares(const typename X::Squares& squares) const {
    if (params_.norm == nullptr) return;
#pragma unroll
    for (int token = 0; token < kTokens; ++token) {
      float sum = squares[token];
      for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
      if (lane_ == 0) row_squares_[warp_ * kTokens + token] = sum;
    }
  }

  __device__ __forceinline__ void store_partial_sums(int pair, const float (&sums)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = 2 * (lane_ % 4) + i % 2, group = 2 * pair + i / 2;
      if (token < kTokens)
        partial_[(warp_ * kGroups + group) * kGroupOutputs + token * kFeatures + lane_ / 4] = sums[i];
    }
  }

  const QuantizedWeight& weight_;
  Pipeline pipeline_;
  const uint32_t x_;
};

// Partition of a product. Two CTAs per SM, so that epilogue and dequantization of one overlap with the other,
// unless this unbalances the SMs; stages for one or two CTAs.
struct QuantizedKRanges {
  int num_ctas_per_sm, num_ctas;

  explicit QuantizedKRanges(const SkinnyGemmParams& params) {
    const int sms = num_sms(), n_tiles = num_n_tiles(params);
    const auto most = [&](int ctas) { return (n_tiles + ctas - 1) / ctas; };
    const bool fits = skinny_quantized_x_bytes(params.num_rows, params.in_features) <= kTwoCtasMaxXBytes;
    num_ctas_per_sm = fits && params.num_rows == 1 && 2 * most(2 * sms) <= most(sms) ? 2 : 1;
    num_ctas = std::min(n_tiles, num_ctas_per_sm * sms);
  }

  static constexpr int kTwoCtasMaxXBytes = 40 << 10;
};
template <int kTokens, int kCtasPerSm>
inline constexpr int kQuantizedStages = kTokens > 1       ? 8
                                        : kCtasPerSm == 2 ? 4
                                                          : 6;

// Groups per pass, limited by the space for partial sums.
template <int kTokens>
inline constexpr int kQuantizedGroups = kTokens > 1 ? 8 : 16;

// Calls launch.operator()<kTokens, kCtasPerSm>() for a product.
template <class Launch>
void visit_quantized_shape(const SkinnyGemmParams& product, const QuantizedKRanges& ranges,
                           const Launch& launch) {
  if (product.num_rows > 1) return launch.template operator()<kMaxSkinnyQuantizedRows, 1>();
  if (ranges.num_ctas_per_sm == 2) return launch.template operator()<1, 2>();
  launch.template operator()<1, 1>();
}

// Launches `kKernel`. Its CTAs have class `Cta`. `params` contains `product`.
template <class Cta, auto kKernel, class Params>
void launch_quantized_ctas(const Params& params, const SkinnyGemmParams& product,
                           const QuantizedKRanges& ranges, void* stream) {
  allow_shared_memory<kKernel>(kLargeSharedBytes, "linear: shared memory");
  launch_dependent<Params>(kKernel, static_cast<unsigned>(ranges.num_ctas), kSkinnyThreads,
                           static_cast<size_t>(Cta::shared_bytes(product.in_features)), stream, params,
                           "linear");
}

template <class T, WeightFormat kFormat, int kTokens, int kCtasPerSm>
__global__ void __launch_bounds__(kSkinnyThreads, kCtasPerSm)
    skinny_quantized_kernel(const __grid_constant__ SkinnyQuantizedParams params) {
  extern __shared__ __align__(128) char shared[];
  SkinnyQuantizedCta<T, kFormat, kQuantizedGroups<kTokens>, kTokens, kQuantizedStages<kTokens, kCtasPerSm>,
                     SkinnyGemmEpilogue>(params.product, params.weight, SkinnyGemmEpilogue(params.product),
                                         shared)
      .run();
}

template <class T>
void launch_skinny_quantized(const SkinnyQuantizedParams& params, void* stream) {
  const QuantizedKRanges ranges(params.product);
  const auto launch_format = [&](auto format) {
    visit_quantized_shape(params.product, ranges, [&]<int kTokens, int kCtasPerSm>() {
      using Cta = SkinnyQuantizedCta<T, format(), kQuantizedGroups<kTokens>, kTokens,
                                     kQuantizedStages<kTokens, kCtasPerSm>, SkinnyGemmEpilogue>;
      launch_quantized_ctas<Cta, skinny_quantized_kernel<T, format(), kTokens, kCtasPerSm>>(
          params, params.product, ranges, stream);
    });
  };
  if (params.weight.format == WeightFormat::kFp8)
    launch_format(std::integral_constant<WeightFormat, WeightFormat::kFp8>{});
  else if (params.weight.format == WeightFormat::kInt8)
    launch_format(std::integral_constant<WeightFormat, WeightFormat::kInt8>{});
  else
    launch_format(std::integral_constant<WeightFormat, WeightFormat::kInt4>{});
}

}  // namespace attend::kernels::cuda::sm80
