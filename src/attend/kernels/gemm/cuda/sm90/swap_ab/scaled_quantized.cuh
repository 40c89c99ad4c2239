// Swap-AB split-K GEMM of int4 and fp8 on sm_90a for more rows of x than swap_ab_quantized.cuh targets. There
// the sums of 128 inputs are scaled separately. Here scales are applied to the operands (scaled_int4.cuh), or
// each row of W has one scale (row_scaled_fp8.cuh), so the tensor cores never drain and a warpgroup has
// registers for the sums of 128 rows of W.
//
//   tile        128 kBlocks rows of W x kTokens rows of x; clusters and pipelines of swap_ab_pipeline.cuh,
//               with kBlocks tiles of 128 rows; epilogue of quantized_tile_epilogue.cuh
//   warps       two consumer warpgroups with 64 rows of each of those tiles; one warp loads W, one loads x
//   registers   240 per consumer thread: sums, operands of two parts of 32 inputs, quantized values of the
//               next part
//   bytes       quantized W once from memory; x once per CTA and tile, from L2
//   bound       tensor cores: 512 cycles for 64 inputs of 128 rows of W and 128 of x. Meanwhile each SM
//               sub-partition issues half an instruction per cycle: per warp, 32 inputs of 256 rows of W
//               need 83 in int4, 106 in fp8
#pragma once

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend/kernels/gemm/cuda/sm90/cta_roles.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/quantized_tile_epilogue.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/row_scaled_fp8.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/scaled_int4.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_pipeline.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_quantized_kernel.h"
#include "attend_generated/wgmma_codes_products.cuh"

namespace attend::kernels::cuda::sm90 {

// Consumer of all stages of all tiles. A stage is 128 bytes of 128 rows of W and is multiplied in parts of 32
// inputs. While one part is multiplied, the next is dequantized and the values of the part after it are
// loaded. Dequantization: ScaledInt4 or RowScaledFp8.
template <class T, class Dequantization, int kBlocks, int kTokens>
class ScaledQuantizedConsumer {
  using Pipeline = SwapAbPipeline<kQuantizedTileWarpgroups, kTokens>;

  static constexpr int kParts = Dequantization::kStageInputs / kScaledPartInputs;
  static constexpr int kPartsPerGroup = Dequantization::kPartsPerGroup, kGroups = kParts / kPartsPerGroup;
  static constexpr int kSteps = kScaledPartInputs / 16, kMmaBytes = 32;  // wgmma steps, bytes per row of x
  static constexpr int kPartsPerBlock = kBlockK / kScaledPartInputs;     // parts per K-block of x
  static constexpr int kTokenStages = kScaledQuantizedTokenStages;
  static constexpr int kBlockStages = kBlocks;  // stages of W per K-block
  static constexpr int kTileRows = kQuantizedTileWarpgroups * kWarpgroupRows,
                       kTileBytes = kTileRows * kRowBytes;

  using Factors = typename Dequantization::Factors;
  using Accumulators = float[kBlocks][kTokens / 2];

 public:
  static constexpr int kTokenBlocks = Dequantization::kStageInputs / kBlockK;  // K-blocks of x per stage of W
  static_assert(kTokenStages % kTokenBlocks == 0);

  __device__ __forceinline__ ScaledQuantizedConsumer(const Pipeline& pipeline, const QuantizedWeight& weight)
      : pipeline_(pipeline),
        first_tokens_(ptx::smem_descriptor(pipeline.tokens)),
        dequantization_(weight, lane_),
        outputs_(pipeline, weight),
        tile_(pipeline.range.first_tile),
        k_block_(pipeline.range.k_block_begin) {
    const int row = lane_ / 4;  // of eight rows, by which chunks of 16 bytes are swizzled
    first_codes_ = pipeline.weights + (warp_ * kPairRows + row) * kRowBytes + row * 16;
  }

  __device__ __forceinline__ void run() {
    const SwapAbCtaRange& range = pipeline_.range;
    if (has_next()) {
      locate_scales();
      dequantization_.load(k_block_);
    }
    wait_for_inputs();
    if (!has_next()) return;
    Factors even, odd;
    wait_for_weights();
    load_quantized(0);
    dequantization_.use_group(0);
    dequantize(even);
    load_quantized(1);
    for (int tile = range.first_tile; tile < num_tiles(); tile += range.num_clusters) {
      Accumulators sums;
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
#pragma unroll
        for (float& sum : sums[block]) sum = 0.0f;
#pragma unroll 1
      for (int k_block = range.k_block_begin; k_block < range.k_block_end; ++k_block)
        multiply_stage(even, odd, sums, k_block == range.k_block_begin);
      ptx::wgmma_wait_group<0>();
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) ptx::fence_operand(sums[block]);
      release_tokens_before(0);
      // Not unrolled, to limit instruction fetches.
#pragma unroll 1
      for (int block = 0; block < kBlocks; ++block) {
        const bool last = block + 1 == kBlocks && tile + range.num_clusters >= num_tiles();
        outputs_.exchange_and_write(tile * kBlocks + block, sums[0], last);
        if constexpr (kBlocks > 1)
#pragma unroll
          for (int i = 0; i < kTokens / 2; ++i) sums[0][i] = sums[kBlocks - 1][i];
      }
    }
  }

 private:
  __device__ __forceinline__ int num_tiles() const {
    return (pipeline_.params.num_tiles + kBlocks - 1) / kBlocks;
  }
  __device__ __forceinline__ bool has_next() const { return tile_ < num_tiles(); }

  // Multiplies a stage with its first part dequantized and the values of its second part loaded; leaves the
  // next stage in the same state. `first`: first stage of the tile.
  __device__ __forceinline__ void multiply_stage(Factors& even, Factors& odd, Accumulators& sums,
                                                 bool first) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      Factors& now = part % 2 == 0 ? even : odd;
      Factors& next = part % 2 == 0 ? odd : even;
      multiply(part, now, sums);
      // The next part starts a group, possibly of the next stage.
      if ((part + 1) % kPartsPerGroup == 0) dequantization_.use_group((part + 1) / kPartsPerGroup % kGroups);
      ptx::wgmma_wait_group<1>();  // `next` is free
      if (part % kPartsPerBlock == 0 && (part > 0 || !first)) release_tokens_before(part / kPartsPerBlock);
      dequantize(next);
      if (part == kParts / 2) advance();
      if (part == kParts - 2) {
        release_weights();
        if (has_next()) wait_for_weights();
      }
      load_quantized((part + 2) % kParts);
    }
    first_token_stage_ = (first_token_stage_ + kTokenBlocks) % kTokenStages;
    if (first_token_stage_ == 0) token_parity_ ^= 1;
  }

  // Advances to the stage after the one that is being multiplied, if there is one, and loads its scales.
  __device__ __forceinline__ void advance() {
    const SwapAbCtaRange& range = pipeline_.range;
    if (++k_block_ == range.k_block_end) {
      k_block_ = range.k_block_begin;
      tile_ += range.num_clusters;
      if (has_next()) locate_scales();
    }
    if (has_next()) dequantization_.load(k_block_);
  }

  // Finds the first scales of a lane's rows of the tile.
  __device__ __forceinline__ void locate_scales() {
    const SwapAbGemmParams& params = pipeline_.params;
    const int num_rows = params.gated ? 2 * params.out_features : params.out_features;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int pair = (tile_ * kBlocks + block) * (kTileRows / kPairRows) + warp_, row = lane_ / 4;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int weight_row = params.gated ? pair * kPairRows / 2 + row + i * params.out_features
                                            : pair * kPairRows + row + 8 * i;
        dequantization_.locate(block, i, min(weight_row, num_rows - 1), pipeline_.range.k_block_begin,
                               pipeline_.range.k_block_end);
      }
    }
  }

  __device__ __forceinline__ void load_quantized(int part) {
    const uint32_t rows = first_codes_ + weights_.stage * kTileBytes;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int vector = 0; vector < Dequantization::kVectors; ++vector)
          codes_[block][i][vector] =
              ptx::ld_shared_16((rows ^ (part * Dequantization::kVectors + vector) * 16) +
                                block * kTileBytes + i * 8 * kRowBytes);
  }

  __device__ __forceinline__ void dequantize(Factors& factors) const {
    dequantization_.widen(codes_, factors);
    // Keeps these instructions before the following ones, so that they overlap with the tensor cores.
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
#pragma unroll
        for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(factors[block][step][i])::"memory");
  }

  // Starts the products of a part.
  __device__ __forceinline__ void multiply(int part, const Factors& factors, Accumulators& sums) {
    const int stage = first_token_stage() + part / kPartsPerBlock, part_in_block = part % kPartsPerBlock;
    if (part_in_block == 0) ptx::mbarrier_wait(pipeline_.tokens_full(stage), token_parity_);
    const uint64_t x =
        first_tokens_ + stage * (Pipeline::kTokenBytes / 16) + part_in_block * kSteps * (kMmaBytes / 16);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
        ptx::wgmma_mma_async_rs_k_major(sums[block], factors[block][step], x + step * (kMmaBytes / 16), true,
                                        T{});
    ptx::wgmma_commit_group();
  }

  __device__ __forceinline__ void wait_for_weights() {
#pragma unroll
    for (int block = 0; block < kBlockStages; ++block)
      ptx::mbarrier_wait(pipeline_.weights_full(weights_.stage + block), weights_.parity);
  }
  __device__ __forceinline__ void release_weights() {
    __syncwarp();
    if (lane_ < kBlockStages) ptx::mbarrier_arrive(pipeline_.weights_empty(weights_.stage + lane_));
    weights_.stage += kBlockStages;
    if (weights_.stage == pipeline_.params.weight_stages) {
      weights_.stage = 0;
      weights_.parity ^= 1;
    }
  }
  // Returns the first stage of x for this stage of W.
  __device__ __forceinline__ int first_token_stage() const {
    return kTokenBlocks == kTokenStages ? 0 : first_token_stage_;
  }
  // Releases the stage of x before the stage's K-block `block`.
  __device__ __forceinline__ void release_tokens_before(int block) {
    if (lane_ == 0)
      ptx::mbarrier_arrive(
          pipeline_.tokens_empty((first_token_stage() + block + kTokenStages - 1) % kTokenStages));
  }

  const Pipeline& pipeline_;
  const int warp_ = static_cast<int>(threadIdx.x) / 32, lane_ = static_cast<int>(threadIdx.x) % 32;
  uint32_t first_codes_;
  const uint64_t first_tokens_;    // descriptor of x's first stage
  Dequantization dequantization_;  // state of the stage after the one that is multiplied
  QuantizedTileEpilogue<T, kTokens, Dequantization> outputs_;
  int tile_, k_block_;                    // of the stage with loaded scales
  typename Dequantization::Codes codes_;  // values of the part that is dequantized next
  PipelineState weights_;
  uint32_t token_parity_ = 0;
  int first_token_stage_ = 0;
};

struct ScaledQuantizedThreads {
  // A warpgroup, of which two threads load; consumers get its registers.
  static constexpr int kProducers = 128;
  static constexpr int kAll = kQuantizedTileWarpgroups * 128 + kProducers;
  static constexpr int kConsumerWarps = 4 * kQuantizedTileWarpgroups;
  static constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
};

template <class T, class Dequantization, int kBlocks, int kTokens>
__global__ void __launch_bounds__(ScaledQuantizedThreads::kAll, 1)
    scaled_quantized_kernel(const __grid_constant__ SwapAbQuantizedParams params) {
  using Pipeline = SwapAbPipeline<kQuantizedTileWarpgroups, kTokens>;
  using Consumer = ScaledQuantizedConsumer<T, Dequantization, kBlocks, kTokens>;
  extern __shared__ __align__(kSwizzleBytes) char shared[];
  const Pipeline pipeline(params.gemm, shared);
  begin_cta</*kCluster=*/true>([&] { pipeline.init(); });
  run_roles<ScaledQuantizedThreads>(
      [&](int) { Consumer(pipeline, params.weight).run(); },
      [&] { pipeline.template produce_weights<kBlocks>(); },
      [&] { pipeline.template produce_tokens<Consumer::kTokenBlocks, kBlocks>(); });
}

template <class T, class Dequantization, int kBlocks, int kTokens>
void launch_scaled_quantized_instance(const SwapAbQuantizedParams& params, const SwapAbGemmShape& shape,
                                      void* stream) {
  constexpr auto kKernel = scaled_quantized_kernel<T, Dequantization, kBlocks, kTokens>;
  const SwapAbGemmParams& gemm = params.gemm;
  const int shared_bytes = SwapAbPipeline<kQuantizedTileWarpgroups, kTokens>::shared_bytes(
      gemm.weight_stages, gemm.tile_pairs, gemm.token_stages);
  allow_shared_memory<kKernel>(kSharedBytes, "linear: shared memory");
  launch_dependent<SwapAbQuantizedParams>(
      kKernel, static_cast<unsigned>(shape.num_clusters * shape.cluster_size), ScaledQuantizedThreads::kAll,
      static_cast<size_t>(shared_bytes), stream, params, "linear", shape.cluster_size);
}

template <class T>
void launch_scaled_quantized(const SwapAbQuantizedParams& params, const SwapAbGemmShape& shape,
                             void* stream) {
  const auto launch = [&](auto tiles) {
    if (params.weight.format == WeightFormat::kFp8)
      launch_scaled_quantized_instance<T, RowScaledFp8<T, tiles()>, tiles(), kMaxTokens>(params, shape,
                                                                                         stream);
    else if (params.weight.zeros != nullptr)
      launch_scaled_quantized_instance<T, ScaledInt4<T, tiles(), true>, tiles(), kMaxTokens>(params, shape,
                                                                                             stream);
    else
      launch_scaled_quantized_instance<T, ScaledInt4<T, tiles(), false>, tiles(), kMaxTokens>(params, shape,
                                                                                              stream);
  };
  if (shape.scaled_tiles == 1)
    launch(std::integral_constant<int, 1>{});
  else
    launch(std::integral_constant<int, 2>{});
}

}  // namespace attend::kernels::cuda::sm90
