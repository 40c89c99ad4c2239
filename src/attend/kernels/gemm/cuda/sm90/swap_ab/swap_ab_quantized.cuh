// Swap-AB split-K GEMM of quantized weights on sm_90a: swap_ab_gemm.cuh with quantized W. A stage of W is 128
// bytes of a row as there: 128 inputs in 8 bits, 256 in int4. Consumers dequantize to registers, which are
// wgmma's operand A.
//
//   tile        16 to 128 rows of W x kTokens rows of x (32, 64 or 128); clusters, pipelines and epilogue of
//               swap_ab_gemm.cuh
//   warps       as there; a consumer dequantizes 64 inputs of its 16 rows while the previous 64 are
//               multiplied
//   registers   168 at most: accumulators of the tile and of a group, operands of two times 64 inputs
//   bytes       quantized W once from memory; x once per CTA and tile, from L2
//   bound       reading W, and dequantization: about 2 (int4) and 2.5 (fp8) instructions per value
//
// Quantized values are exact operands. Sums of 128 inputs are multiplied by their scale in float32, so a
// scale group is a multiple of 128 inputs.
#pragma once

#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/gemm/cuda/common/load_weight.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/quantized_weight_layout.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_quantized_kernel.h"
#include "attend_generated/wgmma_codes_products.cuh"

namespace attend::kernels::cuda::sm90 {

// Consumer of all stages of all tiles. A stage of W is multiplied in parts of 64 inputs, each with a K-block
// of x. While one part is multiplied, the next is dequantized.
template <class T, WeightFormat kFormat, int kWarpgroups, int kTokens>
class QuantizedConsumer {
  using Layout = QuantizedWeightLayout<kFormat>;
  using Pipeline = SwapAbPipeline<kWarpgroups, kTokens>;
  using Pairs = LanePairs<T, kFormat>;

  static constexpr int kMmaInputs = 16, kMmaBytes = 32;                 // bytes per row of x
  static constexpr int kSteps = kBlockK / kMmaInputs;                   // wgmma steps per part
  static constexpr int kVectors = kBlockK / Layout::kInputsPer16Bytes;  // vectors per row and part
  static constexpr int kGroups = Layout::kInputsPerStage / kScaledInputs;
  static_assert(kScaledInputs == 2 * kBlockK);

  using Factors = uint32_t[kSteps][4];
  using Accumulators = float[kTokens / 2];
  // Scales and zeros of a lane's two rows per group of kScaledInputs of a stage. Kept as loaded, since
  // converting a load immediately would wait for it.
  struct Groups {
    uint32_t scale_bits[kGroups][2];
    uint32_t zero[kGroups][2];
  };

 public:
  static constexpr int kTokenBlocks = Layout::kInputsPerStage / kBlockK;  // K-blocks of x per stage of W

  __device__ __forceinline__ QuantizedConsumer(const Pipeline& pipeline, const QuantizedWeight& weight,
                                               char* shared)
      : pipeline_(pipeline),
        weight_(weight),
        pairs_(lane_),
        epilogue_(pipeline, shared),
        tile_(pipeline.range.first_tile),
        k_block_(pipeline.range.k_block_begin) {}

  __device__ __forceinline__ void run() {
    const SwapAbCtaRange& range = pipeline_.range;
    const int num_tiles = pipeline_.params.num_tiles;
    if (tile_ < num_tiles) {
      locate_scales();
      next_ = load_groups();
    }
    wait_for_inputs();
    if (tile_ >= num_tiles) return;
    ptx::mbarrier_wait(pipeline_.weights_full(weights_.stage), weights_.parity);
    Factors even, odd;
    dequantize(0, next_.zero[0], even);
    keep(even);
    for (int tile = range.first_tile; tile < num_tiles; tile += range.num_clusters) {
      epilogue_.prefetch(tile);
      Accumulators sums;
#pragma unroll
      for (float& sum : sums) sum = 0.0f;
#pragma unroll 1
      for (int k_block = range.k_block_begin; k_block < range.k_block_end; ++k_block) {
        const Groups groups = next_;
        advance();
        multiply_stage(groups, even, odd, sums);
      }
      epilogue_.exchange_and_write(tile, sums, tile + range.num_clusters >= num_tiles);
    }
  }

 private:
  // Advances to the stage after the one that is multiplied next, if there is one, and loads its scales early.
  __device__ __forceinline__ void advance() {
    const SwapAbCtaRange& range = pipeline_.range;
    if (++k_block_ == range.k_block_end) {
      k_block_ = range.k_block_begin;
      tile_ += range.num_clusters;
      if (tile_ < pipeline_.params.num_tiles) locate_scales();
    }
    if (has_next()) next_ = load_groups();
  }
  __device__ __forceinline__ bool has_next() const { return tile_ < pipeline_.params.num_tiles; }

  // Multiplies a stage with its first part dequantized; leaves the next stage in the same state.
  __device__ __forceinline__ void multiply_stage(const Groups& groups, Factors& even, Factors& odd,
                                                 Accumulators& sums) {
    Accumulators part;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      multiply(even, part, false);
      dequantize(2 * group + 1, groups.zero[group], odd);
      const bool last = group + 1 == kGroups;
      if (last) release_weights();
      multiply(odd, part, true);
      if (last && has_next()) ptx::mbarrier_wait(pipeline_.weights_full(weights_.stage), weights_.parity);
      ptx::wgmma_wait_group<1>();  // `even` is free
      // After the last stage these values are stale and not multiplied.
      if (last)
        dequantize(0, next_.zero[0], even);
      else
        dequantize(2 * group + 2, groups.zero[group + 1 < kGroups ? group + 1 : 0], even);
      keep(even);  // finishes while `odd` is multiplied, not after the wait for it
      const float scale[2] = {to_scale(groups.scale_bits[group][0]), to_scale(groups.scale_bits[group][1])};
      ptx::wgmma_wait_group<0>();
      ptx::fence_operand(part);
      release_tokens();
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) sums[i] = fmaf(part[i], scale[i / 2 % 2], sums[i]);
    }
  }

  // Finds the first scales of a lane's rows of the tile.
  __device__ __forceinline__ void locate_scales() {
    const SwapAbGemmParams& params = pipeline_.params;
    const int pair = tile_ * params.tile_pairs + warp_, row = lane_ / 4;
    const int num_rows = params.gated ? 2 * params.out_features : params.out_features;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int weight_row = params.gated ? pair * kPairRows / 2 + row + i * params.out_features
                                          : pair * kPairRows + row + 8 * i;
      scales_[i] = row_scales_begin(weight_, min(weight_row, num_rows - 1));
    }
  }

  __device__ __forceinline__ Groups load_groups() const {
    Groups loaded;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const int input =
          min(k_block_ * Layout::kInputsPerStage + group * kScaledInputs, weight_.in_features - 1);
      const int column = input_group(weight_, input);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int64_t at = scales_[i] + column;
        if (!QuantizedBlock<kFormat>::kFourBits || weight_.scale_element == Element::kF32)
          loaded.scale_bits[group][i] = static_cast<const uint32_t*>(weight_.scales)[at];
        else
          loaded.scale_bits[group][i] = static_cast<const uint16_t*>(weight_.scales)[at];
        if constexpr (kFormat == WeightFormat::kInt4)
          loaded.zero[group][i] = static_cast<uint32_t>(load_zero(weight_, at));
        else
          loaded.zero[group][i] = 0;
      }
    }
    return loaded;
  }
  __device__ __forceinline__ float to_scale(uint32_t bits) const {
    if (!QuantizedBlock<kFormat>::kFourBits || weight_.scale_element == Element::kF32)
      return __uint_as_float(bits);
    if (weight_.scale_element == Element::kBF16) return __uint_as_float(bits << 16);
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
  }

  // Forces the operands to be computed before the following instructions.
  static __device__ __forceinline__ void keep(Factors& factors) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(factors[step][i])::"memory");
    ptx::wgmma_fence();
  }

  // Dequantizes a part of the lane's two rows of the stage, which has swizzled rows of 128 bytes.
  __device__ __forceinline__ void dequantize(int part, const uint32_t (&zero)[2], Factors& factors) const {
    const int row = lane_ / 4;  // of eight rows, by which chunks of 16 bytes are swizzled
    const uint32_t shifted[2] = {shifted_zero<T>(static_cast<int>(zero[0])),
                                 shifted_zero<T>(static_cast<int>(zero[1]))};
    const uint32_t rows = pipeline_.weights_at(weights_.stage) + (warp_ * kPairRows + row) * kRowBytes;
#pragma unroll
    for (int vector = 0; vector < kVectors; ++vector) {
      const uint32_t chunk = static_cast<uint32_t>((part * kVectors + vector) ^ row) * 16;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t pairs[Pairs::kPairs];
        pairs_.take(ptx::ld_shared_16(rows + i * 8 * kRowBytes + chunk), shifted[i], pairs);
#pragma unroll
        for (int eight = 0; eight < Pairs::kPairs; ++eight)
          factors[(vector * Pairs::kPairs + eight) / 2][eight % 2 * 2 + i] = pairs[eight];
      }
    }
  }

  __device__ __forceinline__ void release_weights() {
    __syncwarp();
    if (lane_ == 0) ptx::mbarrier_arrive(pipeline_.weights_empty(weights_.stage));
    weights_.advance(pipeline_.params.weight_stages);
  }

  // Starts the products of a part.
  __device__ __forceinline__ void multiply(const Factors& factors, Accumulators& part, bool add) {
    ptx::mbarrier_wait(pipeline_.tokens_full(tokens_.stage), tokens_.parity);
    const uint64_t x = ptx::smem_descriptor(pipeline_.tokens_at(tokens_.stage));
    tokens_.advance(pipeline_.params.token_stages);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ptx::wgmma_mma_async_rs_k_major(part, factors[step], x + step * (kMmaBytes / 16), add || step > 0, T{});
    ptx::wgmma_commit_group();
  }

  // Releases x of both parts of a group.
  __device__ __forceinline__ void release_tokens() {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      if (lane_ == 0) ptx::mbarrier_arrive(pipeline_.tokens_empty(read_tokens_.stage));
      read_tokens_.advance(pipeline_.params.token_stages);
    }
  }

  const Pipeline& pipeline_;
  const QuantizedWeight& weight_;
  const int warp_ = static_cast<int>(threadIdx.x) / 32, lane_ = static_cast<int>(threadIdx.x) % 32;
  const Pairs pairs_;
  SwapAbEpilogue<kWarpgroups, kTokens> epilogue_;
  int tile_, k_block_;  // position of the stage of next_
  Groups next_;
  PipelineState weights_, tokens_, read_tokens_;
  int64_t scales_[2];
};

// Threads after the consumers. Two warps do the work of kScaleWarps: more threads would leave consumers fewer
// registers. If kTokens is so large that accumulators do not fit next to them, a deferred norm is not
// supported, and consumers get the registers of a warpgroup with the two producers.
template <int kWarpgroups, int kTokens>
struct QuantizedThreads {
  static constexpr bool kHasScales = kTokens <= kMaxDeferredQuantizedTokens;
  static constexpr bool kReallocatesRegisters = !kHasScales && kWarpgroups > 1;
  static constexpr int kScaleWarps = kHasScales ? 2 : 0;
  static constexpr int kProducers = kReallocatesRegisters ? 128 : 64;
  static constexpr int kAll = kWarpgroups * 128 + kProducers + 32 * kScaleWarps;
  static constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
};

template <class T, WeightFormat kFormat, int kWarpgroups, int kTokens>
__global__ void __launch_bounds__((QuantizedThreads<kWarpgroups, kTokens>::kAll), 1)
    swap_ab_quantized_kernel(const __grid_constant__ SwapAbQuantizedParams params) {
  using Pipeline = SwapAbPipeline<kWarpgroups, kTokens>;
  using Consumer = QuantizedConsumer<T, kFormat, kWarpgroups, kTokens>;
  using Threads = QuantizedThreads<kWarpgroups, kTokens>;
  extern __shared__ __align__(kSwizzleBytes) char shared[];
  const Pipeline pipeline(params.gemm, shared);
  begin_cta</*kCluster=*/true>([&] { pipeline.init(); });
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < Pipeline::kConsumerWarps) {
    if constexpr (Threads::kReallocatesRegisters) ptx::setmaxnreg_inc<Threads::kConsumerRegisters>();
    Consumer(pipeline, params.weight, shared).run();
    return;
  }
  if constexpr (Threads::kReallocatesRegisters) ptx::setmaxnreg_dec<Threads::kProducerRegisters>();
  const int producer = warp - Pipeline::kConsumerWarps;
  if (producer >= 2) {
    if constexpr (Threads::kHasScales)
      for (int work = producer - 2; work < kScaleWarps<kTokens>; work += Threads::kScaleWarps)
        compute_row_scales(pipeline, reinterpret_cast<float*>(shared + (pipeline.scales - pipeline.tokens)),
                           work);
  } else if (threadIdx.x % 32 == 0) {
    if (producer == 0)
      pipeline.produce_weights();
    else
      pipeline.template produce_tokens<Consumer::kTokenBlocks>();
  }
}

template <class T, WeightFormat kFormat, int kWarpgroups, int kTokens>
void launch_quantized_instance(const SwapAbQuantizedParams& params, const SwapAbGemmShape& shape,
                               void* stream) {
  constexpr auto kKernel = swap_ab_quantized_kernel<T, kFormat, kWarpgroups, kTokens>;
  using Threads = QuantizedThreads<kWarpgroups, kTokens>;
  const SwapAbGemmParams& gemm = params.gemm;
  const int shared_bytes = SwapAbPipeline<kWarpgroups, kTokens>::shared_bytes(
      gemm.weight_stages, gemm.tile_pairs, gemm.token_stages);
  allow_shared_memory<kKernel>(kSharedBytes, "linear: shared memory");
  const bool scales = gemm.norm.partial_squares != nullptr;
  const int num_threads = Threads::kAll - (scales ? 0 : 32 * Threads::kScaleWarps);
  launch_dependent<SwapAbQuantizedParams>(
      kKernel, static_cast<unsigned>(shape.num_clusters * shape.cluster_size), num_threads,
      static_cast<size_t>(shared_bytes), stream, params, "linear", shape.cluster_size);
}

template <class T>
void launch_swap_ab_quantized(const SwapAbQuantizedParams& params, const SwapAbGemmShape& shape,
                              void* stream) {
  const auto launch_shape = [&](auto format) {
    visit_instance(shape, [&](auto warpgroups, auto tokens) {
      launch_quantized_instance<T, format(), warpgroups(), tokens()>(params, shape, stream);
    });
  };
  if (params.weight.format == WeightFormat::kFp8)
    launch_shape(std::integral_constant<WeightFormat, WeightFormat::kFp8>{});
  else if (params.weight.format == WeightFormat::kInt8)
    launch_shape(std::integral_constant<WeightFormat, WeightFormat::kInt8>{});
  else
    launch_shape(std::integral_constant<WeightFormat, WeightFormat::kInt4>{});
}

}  // namespace attend::kernels::cuda::sm90
