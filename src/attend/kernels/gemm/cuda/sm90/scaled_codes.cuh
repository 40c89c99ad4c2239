// Swap-AB split-K GEMM of int4 on sm_90a for more rows of x than swap_ab_codes.cuh is made for: there the
// sums of 128 inputs wait for their scale; here scales are in the factors, which are rounded once to 16 bits
// as the weights of a 16-bit checkpoint are, so that the tensor cores never drain and a warpgroup has room
// for the sums of 128 rows of W.
//
//   tile        128 kBlocks rows of W x kTokens rows of x; clusters and pipelines of swap_ab_gemm.cuh, which
//               sees kBlocks tiles of 128 rows; epilogue of code_tile_outputs.cuh
//   warps       two consumer warpgroups, with 64 rows of each of those tiles; a warp produces W and a warp x
//   registers   240 of a consumer: sums, factors of two parts of 32 inputs, codes of the next part
//   bytes       codes of W once from memory; x once per CTA and tile, from L2
//   bound       tensor cores: 512 cycles for 64 inputs of 128 rows of W and 128 of x. Beside them a quarter
//               of an SM issues half an instruction a cycle: 83 of a warp for 32 inputs of 256 rows of W
//
// Three or four instructions make a pair of factors: a byte twice, its low code masked in one half and its
// high one in the other, less the zero point, times the scale.
#pragma once

#include "attend/kernels/common/cuda/ptx/prefetch.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/gemm/cuda/common/load_weight.cuh"
#include "attend/kernels/gemm/cuda/common/widen_codes.cuh"
#include "attend/kernels/gemm/cuda/sm90/code_tile_outputs.cuh"
#include "attend/kernels/gemm/cuda/sm90/scaled_codes_kernel.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab_gemm.cuh"
#include "attend_generated/wgmma_codes_products.cuh"

namespace attend::kernels::cuda::sm90 {

// How the two codes of a byte become factors. The low one stands in bits 0 to 3 of the low half, the high one
// in bits 4 to 7 of the high half, so it counts 16 times as much, which the multiplications undo.
template <class T>
struct ByteOfCodes;

template <class T>
__device__ __forceinline__ uint32_t multiply_pairs(uint32_t a, uint32_t b) {
  using Pair = typename PairOf<T>::Type;
  return bits_of_pair(__hmul2(pair_of_bits<Pair>(a), pair_of_bits<Pair>(b)));
}
template <class T>
__device__ __forceinline__ uint32_t fused_multiply_add(uint32_t a, uint32_t b, uint32_t c) {
  using Pair = typename PairOf<T>::Type;
  return bits_of_pair(__hfma2(pair_of_bits<Pair>(a), pair_of_bits<Pair>(b), pair_of_bits<Pair>(c)));
}

inline constexpr uint32_t kSigns = 0x80008000u;

// Both are subnormal numbers or the first normal ones, which go on where those end: q 2^-133 and q 2^-129.
// 2^126 times that leaves 2^-7 and 2^-3 to the scale. Eight is a power of two, so that without other zero
// points one rounding makes q s - 8 s: of 2^-32 times that, which keeps the scale in range.
template <>
struct ByteOfCodes<__nv_bfloat16> {
  static constexpr uint32_t kBits = 0, kFactor = 0x7e807e80u;
  static constexpr bool kTakesEight = true;
  static constexpr uint32_t kMinusEight = 0x80808008u, k2To97And101 = 0x70007200u, k8And128 = 0x41004300u;
  static constexpr float kSumFactor = 0x1p32f;
};
// 1024 + q and 1024 + 16 q, times 1 and 1 / 16.
template <>
struct ByteOfCodes<__half> {
  static constexpr uint32_t kBits = 0x64006400u, kFactor = 0x2c003c00u;
  static constexpr bool kTakesEight = false;
  static constexpr float kSumFactor = 1.0f;
};

// Consumer: all stages of all tiles. A stage is 128 bytes of 128 rows of W, 256 inputs, and is multiplied in
// parts of 32; while one is multiplied the next is widened and the codes of the one behind it are loaded.
template <class T, int kBlocks, bool kHasZeros, int kTokens>
class ScaledCodesConsumer {
  using Pipeline = SwapAbPipeline<kCodeTileWarpgroups, kTokens>;
  using Byte = ByteOfCodes<T>;
  static constexpr bool kTakesEight = !kHasZeros && Byte::kTakesEight;

  static constexpr int kStageInputs = kScaledStageInputs, kPartInputs = 32,
                       kParts = kStageInputs / kPartInputs;
  static constexpr int kGroups = kStageInputs / kScaledInputs, kPartsOfGroup = kParts / kGroups;
  static constexpr int kSteps = kPartInputs / 16, kMmaBytes = 32;  // of wgmma, of a row of x
  static constexpr int kLineScales = 64;                           // of 128 bytes
  static constexpr int kWords = 4;                                 // of a row, of a part
  static constexpr int kBlockStages = kBlocks;                     // of W, to a K-block
  static constexpr int kTileRows = kCodeTileWarpgroups * kWarpgroupRows, kTileBytes = kTileRows * kRowBytes;

  using Factors = uint32_t[kBlocks][kSteps][4];
  using Codes = uint4[kBlocks][2];  // a part of a lane's rows
  using Accumulators = float[kBlocks][kTokens / 2];
  // Of a stage and a lane's rows: two scales, two zero points, as loaded.
  struct Groups {
    uint32_t scales[kBlocks][2], zeros[kBlocks][2];
  };
  // Of a group, as factors and summands of pairs.
  struct Scaling {
    uint32_t scale[kBlocks][2], zero[kBlocks][2];
  };

 public:
  static constexpr int kTokenBlocks = kStageInputs / kBlockK;  // of x to a stage of W
  static_assert(kTokenBlocks == kScaledCodesTokenStages);

  __device__ __forceinline__ ScaledCodesConsumer(const Pipeline& pipeline, const QuantisedWeight& weight)
      : pipeline_(pipeline),
        weight_(weight),
        first_tokens_(ptx::smem_descriptor(pipeline.tokens)),
        outputs_(pipeline, kTakesEight ? Byte::kSumFactor : 1.0f),
        tile_(pipeline.range.first_tile),
        k_block_(pipeline.range.k_block_begin) {
    const uint32_t t = static_cast<uint32_t>(lane_) % 4;
    selector_ = 0x4040u | t << 8 | t;  // byte t in both halves
    const int row = lane_ / 4;         // of eight, by which chunks of 16 bytes are swizzled
    first_codes_ = pipeline.weights + (warp_ * kPairRows + row) * kRowBytes + row * 16;
  }

  __device__ __forceinline__ void run() {
    const SwapAbCtaRange& range = pipeline_.range;
    if (has_next()) {
      locate_scales();
      load_groups();
    }
    ptx::griddepcontrol_wait();
    // As of swap_ab_gemm_kernel.
    ptx::launch_dependents();
    if (!has_next()) return;
    Factors even, odd;
    wait_for_weights();
    load_codes(0);
    use_group(0);
    widen(even);
    load_codes(1);
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
      release_tokens(kTokenBlocks - 1);
      // Not unrolled, as its code comes from far.
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

  // Of a stage whose first part is widened, and the codes of its second one loaded; leaves the next one so.
  // `first`: of the tile.
  __device__ __forceinline__ void multiply_stage(Factors& even, Factors& odd, Accumulators& sums,
                                                 bool first) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      Factors& now = part % 2 == 0 ? even : odd;
      Factors& next = part % 2 == 0 ? odd : even;
      multiply(part, now, sums);
      // The next part is the first one of a group, perhaps of the next stage.
      if ((part + 1) % kPartsOfGroup == 0) use_group((part + 1) / kPartsOfGroup % kGroups);
      ptx::wgmma_wait_group<1>();  // `next` is free
      if (part % 2 == 0 && (part > 0 || !first)) release_tokens((part / 2 + kTokenBlocks - 1) % kTokenBlocks);
      widen(next);
      if (part == kPartsOfGroup) go_on();
      if (part == kParts - 2) {
        release_weights();
        if (has_next()) wait_for_weights();
      }
      load_codes((part + 2) % kParts);
    }
  }

  // To the stage behind the one that is being multiplied, if there is one; asks for its scales.
  __device__ __forceinline__ void go_on() {
    const SwapAbCtaRange& range = pipeline_.range;
    if (++k_block_ == range.k_block_end) {
      k_block_ = range.k_block_begin;
      tile_ += range.num_clusters;
      if (has_next()) locate_scales();
    }
    if (has_next()) load_groups();
  }

  // Where the scales of a lane's rows of the tile begin.
  __device__ __forceinline__ void locate_scales() {
    const SwapAbGemmParams& params = pipeline_.params;
    const int num_rows = params.gated ? 2 * params.out_features : params.out_features;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int pair = (tile_ * kBlocks + block) * (kTileRows / kPairRows) + warp_, row = lane_ / 4;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int of_weight = params.gated ? pair * kPairRows / 2 + row + i * params.out_features
                                           : pair * kPairRows + row + 8 * i;
        scales_[block][i] = min(of_weight, num_rows - 1) * weight_.scale_columns;
        bring_scales(scales_[block][i]);
      }
    }
  }
  // To L2, where a stage's will be found in time. Four lanes have a row.
  __device__ __forceinline__ void bring_scales(int first) const {
    const auto* const scales = static_cast<const uint16_t*>(weight_.scales) + first;
    for (int group = pipeline_.range.k_block_begin * kGroups + lane_ % 4 * kLineScales;
         group < pipeline_.range.k_block_end * kGroups + kLineScales; group += 4 * kLineScales) {
      const int at = min(group, weight_.scale_columns - 1);
      ptx::prefetch_l2(scales + at);
      if constexpr (kHasZeros) ptx::prefetch_l2(weight_.zeros + first + at);
    }
  }

  __device__ __forceinline__ void load_groups() {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = scales_[block][i] + k_block_ * kGroups;
        groups_.scales[block][i] =
            *reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(weight_.scales) + at);
        if constexpr (kHasZeros)
          groups_.zeros[block][i] = *reinterpret_cast<const uint16_t*>(weight_.zeros + at);
      }
  }

  __device__ __forceinline__ void use_group(int group) {
    const uint32_t twice = group == 0 ? 0x1010u : 0x3232u;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t& scale = scaling_.scale[block][i];
        scale = __byte_perm(groups_.scales[block][i], 0u, twice);
        if constexpr (kTakesEight) {
          scale = multiply_pairs<T>(scale, Byte::k2To97And101);
          scaling_.zero[block][i] = multiply_pairs<T>(scale, Byte::kMinusEight);
        } else {
          if constexpr (std::is_same_v<T, __nv_bfloat16>) scale = multiply_pairs<T>(scale, Byte::k8And128);
          // As two codes, so that codes less zero points are what the two products differ by.
          const uint32_t zero = kHasZeros ? groups_.zeros[block][i] >> (8 * group) & 0xffu : 8u;
          const uint32_t bits = zero * 0x00100001u | Byte::kBits;
          scaling_.zero[block][i] = fused_multiply_add<T>(bits, Byte::kFactor ^ kSigns, kSigns);
        }
      }
  }

  __device__ __forceinline__ void load_codes(int part) {
    const uint32_t rows = (first_codes_ + weights_.stage * kTileBytes) ^ part * 16;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        codes_[block][i] = ptx::ld_shared_16(rows + block * kTileBytes + i * 8 * kRowBytes);
  }

  __device__ __forceinline__ void widen(Factors& factors) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4& bytes = codes_[block][i];
        const uint32_t words[kWords] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
        for (int word = 0; word < kWords; ++word) {
          const uint32_t pair = and_or(__byte_perm(words[word], 0u, selector_), 0x00f0000fu, Byte::kBits);
          uint32_t& factor = factors[block][word / 2][word % 2 * 2 + i];
          const uint32_t scale = scaling_.scale[block][i], zero = scaling_.zero[block][i];
          if constexpr (kTakesEight)
            factor = fused_multiply_add<T>(pair, scale, zero);
          else
            factor = multiply_pairs<T>(fused_multiply_add<T>(pair, Byte::kFactor, zero), scale);
        }
      }
      // Before what comes next, so while the tensor cores multiply.
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
#pragma unroll
        for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(factors[block][step][i])::"memory");
  }

  // Begins the products of a part.
  __device__ __forceinline__ void multiply(int part, const Factors& factors, Accumulators& sums) {
    constexpr int kPartsOfBlock = kParts / kTokenBlocks;
    const int stage = part / kPartsOfBlock, part_of_block = part % kPartsOfBlock;
    if (part_of_block == 0) ptx::mbarrier_wait(pipeline_.tokens_full(stage), token_parity_);
    if (part + 1 == kParts) token_parity_ ^= 1;
    const uint64_t x =
        first_tokens_ + stage * (Pipeline::kTokenBytes / 16) + part_of_block * kSteps * (kMmaBytes / 16);
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
  __device__ __forceinline__ void release_tokens(int stage) {
    if (lane_ == 0) ptx::mbarrier_arrive(pipeline_.tokens_empty(stage));
  }

  const Pipeline& pipeline_;
  const QuantisedWeight& weight_;
  const int warp_ = static_cast<int>(threadIdx.x) / 32, lane_ = static_cast<int>(threadIdx.x) % 32;
  uint32_t selector_, first_codes_;
  CodeTileOutputs<T, kTokens> outputs_;
  int tile_, k_block_;  // of the stage that groups_ is of
  Groups groups_;
  Scaling scaling_;  // of the part that is widened next
  Codes codes_;      // of the part that is widened next
  PipelineState weights_;
  uint32_t token_parity_ = 0;
  const uint64_t first_tokens_;  // descriptor of x's first stage
  int scales_[kBlocks][2];
};

struct ScaledCodesThreads {
  static constexpr int kProducers =
      128;  // a warpgroup, whose registers consumers take; two threads of it work
  static constexpr int kAll = kCodeTileWarpgroups * 128 + kProducers;
  static constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
};

template <class T, int kBlocks, bool kHasZeros, int kTokens>
__global__ void __launch_bounds__(ScaledCodesThreads::kAll, 1)
    scaled_codes_kernel(const __grid_constant__ SwapAbCodesParams params) {
  using Pipeline = SwapAbPipeline<kCodeTileWarpgroups, kTokens>;
  using Consumer = ScaledCodesConsumer<T, kBlocks, kHasZeros, kTokens>;
  extern __shared__ __align__(kSwizzleBytes) char shared[];
  const Pipeline pipeline(params.gemm, shared);
  if (threadIdx.x == 0) pipeline.init();
  __syncthreads();
  // Nobody writes to a CTA whose mbarriers are not initialised yet.
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < Pipeline::kConsumerWarps) {
    ptx::setmaxnreg_inc<ScaledCodesThreads::kConsumerRegisters>();
    Consumer(pipeline, params.weight).run();
    return;
  }
  ptx::setmaxnreg_dec<ScaledCodesThreads::kProducerRegisters>();
  if (threadIdx.x % 32 != 0) return;
  if (warp == Pipeline::kConsumerWarps)
    pipeline.template produce_weights<kBlocks>();
  else if (warp == Pipeline::kConsumerWarps + 1)
    pipeline.template produce_tokens<Consumer::kTokenBlocks, kBlocks>();
}

template <class T, int kBlocks, bool kHasZeros, int kTokens>
void launch_scaled_codes_instance(const SwapAbCodesParams& params, const SwapAbGemmShape& shape,
                                  void* stream) {
  constexpr auto kKernel = scaled_codes_kernel<T, kBlocks, kHasZeros, kTokens>;
  const SwapAbGemmParams& gemm = params.gemm;
  const int shared_bytes = SwapAbPipeline<kCodeTileWarpgroups, kTokens>::shared_bytes(
      gemm.weight_stages, gemm.tile_pairs, gemm.token_stages);
  allow_shared_memory<kKernel>(kSharedBytes, "linear: shared memory");
  launch_dependent<SwapAbCodesParams>(kKernel, static_cast<unsigned>(shape.num_clusters * shape.cluster_size),
                                      ScaledCodesThreads::kAll, static_cast<size_t>(shared_bytes), stream,
                                      params, "linear", shape.cluster_size);
}

template <class T>
void launch_scaled_codes(const SwapAbCodesParams& params, const SwapAbGemmShape& shape, void* stream) {
  const auto launch = [&](auto tiles) {
    if (params.weight.zeros != nullptr)
      launch_scaled_codes_instance<T, tiles(), true, kMaxTokens>(params, shape, stream);
    else
      launch_scaled_codes_instance<T, tiles(), false, kMaxTokens>(params, shape, stream);
  };
  if (shape.scaled_tiles == 1)
    launch(std::integral_constant<int, 1>{});
  else
    launch(std::integral_constant<int, 2>{});
}

}  // namespace attend::kernels::cuda::sm90
