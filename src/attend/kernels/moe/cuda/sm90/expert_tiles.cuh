// Grouped GEMM of many rows on sm_90a: each expert's x W^T for its rows, with wgmma; rows of x are gathered
// by cp.async, W comes by TMA, or is widened from mxfp4 on its way. Persistent CTAs.
//
//   tile        128 rows of one expert x 256 rows of W (gated: gate and up of 128 outputs); K-blocks of 64
//   warps       2 warpgroups multiply 64 rows of x each (A = x, B = W: wgmma m64n256k16, of mxfp4
//               twice m64n128k16); a third gathers x, and one of its threads asks for W; of mxfp4 a third and
//               a fourth gather x and widen W
//   registers   232 a consumer thread, 40 a producer thread (setmaxnreg), launched with 168; of mxfp4 208 and
//               48, launched with 128
//   shared      4 stages of 48 KB, mbarriers, biases, where the experts' rows and tiles begin; 24 KB of codes
//   bytes       of a stage: 16 KB of x, 32 KB of W; of mxfp4 8.5 KB
//   bound       tensor cores; with few rows for each expert reading W
//
// Gated, a thread has gate and up of the same outputs, 64 accumulators apart. What threads wrote is made
// visible to wgmma by the threads that wait for it.
#pragma once

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/copy_word.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"
#include "attend/kernels/gemm/cuda/common/k_block_order.cuh"
#include "attend/kernels/gemm/cuda/common/widen_codes.cuh"
#include "attend/kernels/moe/cuda/common/grouped_tile.cuh"
#include "attend/kernels/moe/cuda/sm90/expert_tiles_kernel.h"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// kCodes: the weight is in mxfp4.
template <bool kCodes_>
struct ExpertTilesConfig {
  static constexpr bool kCodes = kCodes_;
  static constexpr int kWarpgroups = kExpertTileRows / 64, kConsumerWarps = 4 * kWarpgroups;
  // One warp a scheduler waits for itself as it widens: two take half of the time.
  static constexpr int kProducerThreads = kCodes ? 256 : 128, kProducerWarps = kProducerThreads / 32;
  static constexpr int kThreads = 128 * kWarpgroups + kProducerThreads;
  static constexpr int kConsumerRegisters = kCodes ? 208 : 232, kProducerRegisters = kCodes ? 48 : 40;
  static_assert(128 * kWarpgroups * kConsumerRegisters + kProducerThreads * kProducerRegisters <=
                kThreads * (65536 / kThreads / 8 * 8));
  static constexpr int kXBytes = kExpertTileRows * kRowBytes, kWeightBytes = kExpertTileWeights * kRowBytes;
  static constexpr int kBoxBytes = kExpertBoxRows * kRowBytes;
  static constexpr int kStageBytes = kXBytes + kWeightBytes, kStages = 4;
  static constexpr int kBarrierBytes = 128, kMaxExperts = 512;
  static constexpr int kBeginBytes = 2 * (kMaxExperts + 1) * static_cast<int>(sizeof(int32_t));
  // Codes of K-blocks that are to be widened: of each thread's rows of W 16 bytes, kCodePieces times.
  static constexpr int kCodeRows = kExpertTileWeights / kProducerThreads;
  static constexpr int kCodePieces = kExpertTileWeights * kBlockK / 2 / 16 / kProducerThreads;
  static constexpr int kCodeStages = 3, kCodeStageBytes = kCodePieces * kProducerThreads * 16;
  static constexpr int kCodeBytes = kCodes ? kCodeStages * kCodeStageBytes : 0;
  // Of the tile that is multiplied, and of the next one: of each row of W.
  static constexpr int kBiasBytes = 2 * kExpertTileWeights * static_cast<int>(sizeof(float));
  static constexpr int kBiasAt = kStages * kStageBytes + kCodeBytes + kBarrierBytes;
  static constexpr int kSharedBytes = kBiasAt + kBiasBytes + kBeginBytes;
  static constexpr int kAccumulators = kExpertTileWeights / 2;                   // of a thread
  static constexpr int kXCopies = kExpertTileRows * kPieces / kProducerThreads;  // of a thread, of a K-block
  static_assert(16 * kStages <= kBarrierBytes && kSharedBytes <= 227 << 10);
};

template <class T, bool kGated, bool kCodes>
class ExpertTilesCta {
  using Config = ExpertTilesConfig<kCodes>;
  using Accumulators = float[Config::kAccumulators];
  static constexpr int kOutputs = kGated ? kExpertTileWeights / 2 : kExpertTileWeights;  // of a tile

  struct Tile {
    int expert, first_row, end_row, first_output;
  };

 public:
  __device__ __forceinline__ ExpertTilesCta(const ExpertTilesParams& params, char* shared)
      : params_(params),
        product_(params.product),
        shared_(ptx::shared_address(shared)),
        first_row_(reinterpret_cast<int32_t*>(shared + Config::kBiasAt + Config::kBiasBytes)),
        first_tile_(first_row_ + Config::kMaxExperts + 1),
        bias_(reinterpret_cast<float*>(shared + Config::kBiasAt)),
        num_k_blocks_((product_.in_features + kBlockK - 1) / kBlockK),
        tiles_across_((product_.out_features + kOutputs - 1) / kOutputs) {}

  __device__ __forceinline__ void run() {
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < Config::kStages; ++stage) {
        ptx::mbarrier_init(full(stage), Config::kProducerWarps + (kCodes ? 0 : 1));
        ptx::mbarrier_init(empty(stage), Config::kConsumerWarps);
      }
      ptx::fence_mbarrier_init();
    }
    ptx::griddepcontrol_wait();
    // Not before the wait: the next kernel may read early what a kernel before this one has written.
    ptx::launch_dependents();
    for (int i = static_cast<int>(threadIdx.x); i <= product_.num_experts; i += Config::kThreads) {
      first_row_[i] = product_.first_row[i];
      first_tile_[i] = product_.first_tile[i];
    }
    __syncthreads();
    num_tiles_ = first_tile_[product_.num_experts] * tiles_across_;
    const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
    if (warpgroup < Config::kWarpgroups) {
      ptx::setmaxnreg_inc<Config::kConsumerRegisters>();
      consume(warpgroup);
    } else {
      ptx::setmaxnreg_dec<Config::kProducerRegisters>();
      produce(static_cast<int>(threadIdx.x) - 128 * Config::kWarpgroups);
    }
  }

 private:
  __device__ __forceinline__ uint32_t x_at(int stage) const { return shared_ + stage * Config::kStageBytes; }
  __device__ __forceinline__ uint32_t weights_at(int stage) const { return x_at(stage) + Config::kXBytes; }
  __device__ __forceinline__ uint32_t full(int stage) const {
    return shared_ + Config::kStages * Config::kStageBytes + Config::kCodeBytes + 8 * stage;
  }
  __device__ __forceinline__ uint32_t empty(int stage) const { return full(Config::kStages + stage); }

  // Tiles of the same rows are neighbours, then those of the same expert: they run at the same time, and
  // share x and W in L2.
  __device__ __forceinline__ Tile tile_at(int i) const {
    const int row_tile = i / tiles_across_;
    int expert = 0, end = product_.num_experts;  // the last one whose first tile is not behind it
    while (end - expert > 1) {
      const int middle = (expert + end) / 2;
      (first_tile_[middle] <= row_tile ? expert : end) = middle;
    }
    const int first_row = first_row_[expert] + (row_tile - first_tile_[expert]) * kExpertTileRows;
    return {.expert = expert,
            .first_row = first_row,
            .end_row = min(first_row + kExpertTileRows, first_row_[expert + 1]),
            .first_output = i % tiles_across_ * kOutputs};
  }

  __device__ __forceinline__ void produce(int thread) const {
    const int piece = thread % kPieces, row = thread / kPieces;
    constexpr int kRowsAtOnce = Config::kProducerThreads / kPieces;
    static_assert(kRowsAtOnce % 8 == 0, "a thread's pieces are swizzled alike");
    const uint32_t to = swizzled_piece(row, piece);
    const uint64_t policy = ptx::createpolicy_evict_last();
    PipelineState state;
    Codes codes;
    if constexpr (kCodes) begin_codes(thread, codes);
    for (int i = static_cast<int>(blockIdx.x); i < num_tiles_; i += static_cast<int>(gridDim.x)) {
      const Tile tile = tile_at(i);
      int32_t x_rows[Config::kXCopies];
#pragma unroll
      for (int copy = 0; copy < Config::kXCopies; ++copy) {
        // Those behind the last one are the last one again: nobody reads what becomes of them.
        const int from = min(tile.first_row + row + copy * kRowsAtOnce, tile.end_row - 1);
        x_rows[copy] = product_.token_of_row != nullptr ? product_.token_of_row[from] : from;
      }
      const int64_t weight_row = expert_weight_row(product_, tile.expert, 0, tile.first_output);
      const int64_t to_second = kGated ? product_.out_features : kExpertBoxRows;
#pragma unroll 1
      for (int k_block = 0; k_block < num_k_blocks_; ++k_block) {
        uint4 bits[Config::kCodePieces];
        if constexpr (kCodes) load_codes(codes, bits);
        ptx::mbarrier_wait(empty(state.stage), state.parity ^ 1);
        if (!kCodes && thread == 0) {
          ptx::mbarrier_arrive_expect_tx(full(state.stage), Config::kWeightBytes);
          for (int half = 0; half < 2; ++half)
            ptx::cp_async_bulk_tensor(weights_at(state.stage) + half * Config::kBoxBytes, &params_.weight,
                                      k_block * kBlockK, static_cast<int>(weight_row + half * to_second),
                                      full(state.stage), policy);
        }
        const int input = k_block * kBlockK + piece * 8;
        const bool given = input < product_.in_features;
#pragma unroll
        for (int copy = 0; copy < Config::kXCopies; ++copy)
          ptx::cp_async_16(x_at(state.stage) + to + copy * kRowsAtOnce * kRowBytes,
                           static_cast<const char*>(product_.x) +
                               2 * (given ? x_rows[copy] * product_.x_stride + input : 0),
                           given);
        ptx::cp_async_mbarrier_arrive(full(state.stage));
        if constexpr (kCodes) {
          uint32_t exponents[Config::kCodeRows];
#pragma unroll
          for (int r = 0; r < Config::kCodeRows; ++r) exponents[r] = codes.exponents[0][r];
          // Behind the rows of x, which wait for what was asked for before them.
          ask_for_codes(thread, codes);
          widen(thread, bits, exponents, weights_at(state.stage));
        }
        __syncwarp();
        if (thread % 32 == 0) ptx::mbarrier_arrive(full(state.stage));
        state.advance(Config::kStages);
      }
    }
  }

  // Codes of W under way: every thread copies those of its rows of W and widens them.
  struct Codes {
    uint32_t at;                      // the oldest stage of codes
    uint32_t first;                   // stage of codes, in shared memory
    int64_t rows[Config::kCodeRows];  // of W, whose codes are asked for next
    int tile, k_block;
    // Of the codes under way, the oldest first: of each row those of its two groups, in two bytes as they
    // were loaded. What is done to a load waits for it.
    uint32_t exponents[Config::kCodeStages][Config::kCodeRows];
  };
  static constexpr int kScaledInputs = 32;

  __device__ __forceinline__ void begin_codes(int thread, Codes& codes) const {
    codes.first = shared_ + Config::kStages * Config::kStageBytes + thread * 16;
    codes.at = codes.first;
    codes.tile = static_cast<int>(blockIdx.x);
    codes.k_block = 0;
    begin_rows(thread, codes);
#pragma unroll
    for (int stage = 0; stage < Config::kCodeStages; ++stage) ask_for_codes(thread, codes);
  }
  __device__ __forceinline__ void begin_rows(int thread, Codes& codes) const {
    if (codes.tile >= num_tiles_) return;
    const Tile tile = tile_at(codes.tile);
#pragma unroll
    for (int r = 0; r < Config::kCodeRows; ++r) {
      const int tile_row = thread + r * Config::kProducerThreads;
      const int output = tile.first_output + tile_row % kOutputs;
      codes.rows[r] = expert_weight_row(product_, tile.expert, tile_row / kOutputs,
                                        min(output, product_.out_features - 1));
    }
  }
  // Where the oldest are, which are done with.
  __device__ __forceinline__ void ask_for_codes(int thread, Codes& codes) const {
    const auto* const data = static_cast<const uint8_t*>(product_.weight.data);
    uint32_t exponents[Config::kCodeRows] = {};
    if (codes.tile < num_tiles_) {
#pragma unroll
      for (int r = 0; r < Config::kCodeRows; ++r) {
        const int64_t row = codes.rows[r];
#pragma unroll
        for (int group = 0; group < 2; ++group) {
          const int input = codes.k_block * kBlockK + group * kScaledInputs;
          const bool given = input < product_.in_features;
          ptx::cp_async_16(codes.at + (r * 2 + group) * Config::kProducerThreads * 16,
                           data + (given ? (row * product_.in_features + input) / 2 : 0), given);
        }
        exponents[r] = load_exponents(row, codes.k_block * (kBlockK / kScaledInputs));
      }
      if (++codes.k_block == num_k_blocks_) {
        codes.k_block = 0;
        codes.tile += static_cast<int>(gridDim.x);
        begin_rows(thread, codes);
      }
    }
    ptx::cp_async_commit_group();
    codes.at += Config::kCodeStageBytes;
    if (codes.at == codes.first + Config::kCodeStages * Config::kCodeStageBytes) codes.at = codes.first;
#pragma unroll
    for (int r = 0; r < Config::kCodeRows; ++r) {
#pragma unroll
      for (int i = 0; i + 1 < Config::kCodeStages; ++i) codes.exponents[i][r] = codes.exponents[i + 1][r];
      codes.exponents[Config::kCodeStages - 1][r] = exponents[r];
    }
  }
  // Of a row's two groups from this one on, of which the second may be behind the last one. Rows that begin
  // at even bytes have them in one word.
  __device__ __forceinline__ uint32_t load_exponents(int64_t row, int group) const {
    const int num_groups = product_.weight.scale_columns;
    const auto* const from = static_cast<const uint8_t*>(product_.weight.scales) + row * num_groups + group;
    if (num_groups % 2 == 0 && reinterpret_cast<uintptr_t>(product_.weight.scales) % 2 == 0)
      return __ldg(reinterpret_cast<const uint16_t*>(from));
    uint32_t exponents = __ldg(from);
    if (group + 1 < num_groups) exponents |= static_cast<uint32_t>(__ldg(from + 1)) << 8;
    return exponents;
  }
  __device__ __forceinline__ void load_codes(const Codes& codes, uint4 (&bits)[Config::kCodePieces]) const {
    ptx::cp_async_wait_group<Config::kCodeStages - 1>();
#pragma unroll
    for (int i = 0; i < Config::kCodePieces; ++i)
      bits[i] = ptx::ld_shared_16(codes.at + i * Config::kProducerThreads * 16);
  }
  __device__ __forceinline__ void widen(int thread, const uint4 (&bits)[Config::kCodePieces],
                                        const uint32_t (&exponents)[Config::kCodeRows], uint32_t to) const {
#pragma unroll
    for (int i = 0; i < Config::kCodePieces; ++i) {
      const uint32_t words[4] = {bits[i].x, bits[i].y, bits[i].z, bits[i].w};
      const uint32_t factor = pair_of_scale(exponents[i / 2] >> (8 * (i % 2)) & 0xffu);
#pragma unroll
      for (int word = 0; word < 4; ++word)
        ptx::st_shared_16(to + swizzled_piece(thread + i / 2 * Config::kProducerThreads, i % 2 * 4 + word),
                          widened(words[word], factor));
    }
  }

  // 2^(e - 127) twice; of 0 subnormal in bf16.
  __device__ static uint32_t pair_of_scale(uint32_t exponent) {
    const uint32_t scale = exponent == 0 ? 0x40u : exponent << 7;
    return scale << 16 | scale;
  }
  // Eight codes in their order.
  __device__ static uint4 widened(uint32_t codes, uint32_t factor) {
    uint32_t pairs[4];  // of codes j and j + 4
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      pairs[2 * i] = scaled_up<T>(widen_e2m1<T>(codes >> 8 * i), factor);
      pairs[2 * i + 1] = scaled_up<T>(widen_e2m1<T, 1>(codes >> 8 * i), factor);
    }
    return make_uint4(__byte_perm(pairs[0], pairs[1], 0x5410), __byte_perm(pairs[2], pairs[3], 0x5410),
                      __byte_perm(pairs[0], pairs[1], 0x7632), __byte_perm(pairs[2], pairs[3], 0x7632));
  }

  __device__ __forceinline__ void release(int stage) const {
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty(stage));
  }

  __device__ __forceinline__ void consume(int warpgroup) const {
    PipelineState state;
    int bias_of = 0;
    for (int i = static_cast<int>(blockIdx.x); i < num_tiles_; i += static_cast<int>(gridDim.x)) {
      float* const bias = bias_ + bias_of * kExpertTileWeights;
      bias_of ^= 1;
      const Tile tile = tile_at(i);
      load_bias(tile, bias);
      if (tile.first_row + warpgroup * 64 >= tile.end_row) {
        pass(state);
        ptx::barrier_sync(kConsumerBarrier, 128 * Config::kWarpgroups);
        continue;
      }
      Accumulators accumulators;
      int last_stage = 0;
#pragma unroll 1
      for (int k_block = 0; k_block < num_k_blocks_; ++k_block) {
        ptx::mbarrier_wait(full(state.stage), state.parity);
        ptx::fence_proxy_async();
        const uint64_t x = ptx::smem_descriptor(x_at(state.stage) + warpgroup * 64 * kRowBytes);
        const uint64_t weights = ptx::smem_descriptor(weights_at(state.stage));
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < kBlockK / 16; ++step)
          multiply(x + 2 * step, weights + 2 * step, k_block > 0 || step > 0, accumulators);
        ptx::wgmma_commit_group();
        // The wgmma of the K-block before have ended, and its stage is free.
        ptx::wgmma_wait_group<1>();
        if (k_block > 0) release(last_stage);
        last_stage = state.stage;
        state.advance(Config::kStages);
      }
      ptx::wgmma_wait_group<0>();
      ptx::fence_operand(accumulators);
      release(last_stage);
      // The bias is there. Who writes that of the next tile but one has come by here once more.
      ptx::barrier_sync(kConsumerBarrier, 128 * Config::kWarpgroups);
      if (kGated && product_.epilogue.clamped)
        write<true>(tile_at(i), warpgroup, bias, accumulators);
      else
        write<false>(tile_at(i), warpgroup, bias, accumulators);
    }
  }
  // accumulators (+)= x W^T of 16 inputs. Where there are 512 threads, no more than 128 registers are sure to
  // be there for an instruction.
  __device__ __forceinline__ static void multiply(uint64_t x, uint64_t weights, bool add,
                                                  Accumulators& accumulators) {
    if constexpr (Config::kThreads > 384) {
      constexpr int kHalf = Config::kAccumulators / 2, kHalfRows = kExpertTileWeights / 2;
      using Half = float[kHalf];
      ptx::wgmma_mma_async(reinterpret_cast<Half&>(accumulators[0]), x, weights, add, T{});
      ptx::wgmma_mma_async(reinterpret_cast<Half&>(accumulators[kHalf]), x,
                           weights + kHalfRows * kRowBytes / 16, add, T{});
    } else {
      ptx::wgmma_mma_async(accumulators, x, weights, add, T{});
    }
  }

  // The K-blocks of a tile by a warpgroup without rows, which leaves the tensor cores to the other one.
  __device__ __forceinline__ void pass(PipelineState& state) const {
#pragma unroll 1
    for (int k_block = 0; k_block < num_k_blocks_; ++k_block) {
      ptx::mbarrier_wait(full(state.stage), state.parity);
      release(state.stage);
      state.advance(Config::kStages);
    }
  }
  static constexpr int kConsumerBarrier = 1;

  // A thread a row of W of the tile. Gated, gate's come before up's.
  __device__ __forceinline__ void load_bias(const Tile& tile, float* bias) const {
    const int thread = static_cast<int>(threadIdx.x);
    static_assert(kExpertTileWeights == 128 * Config::kWarpgroups);
    const int output = tile.first_output + thread % kOutputs;
    const DeviceVector& from = product_.epilogue.bias;
    bias[thread] =
        from.data != nullptr && output < product_.out_features
            ? load_element(from.data, expert_weight_row(product_, tile.expert, thread / kOutputs, output),
                           from.element)
            : 0.0f;
  }

  // A thread has of every eight outputs 2 (l % 4) and the next, of rows l / 4 of its warp's 16 and that eight
  // below. Of two eights neighbouring lanes exchange theirs, so that one writes four outputs of the first and
  // the other four of the second: whole sectors of 32 bytes. What an output costs counts: all of them are one
  // after another in the code, which a tile goes through once.
  template <bool kClamped>
  __device__ __forceinline__ void write(const Tile& tile, int warpgroup, const float* bias,
                                        const Accumulators& accumulators) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int first_of_lane =
        tile.first_row + warpgroup * 64 + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
    const bool odd = lane % 2 == 1;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_of_lane + 8 * half;
      const bool given = row < tile.end_row;
      const float input_weight = given ? input_weight_of(row) : 1.0f;
      T* const to = static_cast<T*>(product_.out) + int64_t{row} * product_.out_features;
#pragma unroll
      for (int eight = 0; eight < kOutputs / 8; eight += 2) {
        const int output = tile.first_output + (eight + (odd ? 1 : 0)) * 8 + lane % 4 / 2 * 4;
        const uint32_t first = pair_of<kClamped>(eight, half, input_weight, bias, accumulators),
                       second = pair_of<kClamped>(eight + 1, half, input_weight, bias, accumulators);
        const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? first : second, 1);
        if (given && output < product_.out_features)
          *reinterpret_cast<uint2*>(to + output) = odd ? make_uint2(got, second) : make_uint2(first, got);
        // One after another: outputs that are computed beside one another take more registers than there are.
        if constexpr (kCodes) asm volatile("" ::: "memory");
      }
    }
  }
  __device__ __forceinline__ float input_weight_of(int row) const {
    const ExpertEpilogue& rule = product_.epilogue;
    return rule.input_weights != nullptr ? rule.input_weights[rule.pair_of_row[row]] : 1.0f;
  }
  // Two outputs next to each other.
  template <bool kClamped>
  __device__ __forceinline__ uint32_t pair_of(int eight, int half, float input_weight, const float* bias,
                                              const Accumulators& accumulators) const {
    const int column = eight * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
    // Read where they are wanted: all of them at once would be more than there are registers.
    const float2 shift = ptx::ld_shared_8(ptx::shared_address(bias + column));
    const int at = 4 * eight + 2 * half;
    float sums[2] = {fmaf(accumulators[at], input_weight, shift.x),
                     fmaf(accumulators[at + 1], input_weight, shift.y)};
    if constexpr (kGated) {
      const float2 up_shift = ptx::ld_shared_8(ptx::shared_address(bias + kOutputs + column));
      const float ups[2] = {fmaf(accumulators[at + kOutputs / 2], input_weight, up_shift.x),
                            fmaf(accumulators[at + kOutputs / 2 + 1], input_weight, up_shift.y)};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float gate = sums[i], up = ups[i], alpha = 1.0f;
        if constexpr (kClamped) {
          const float limit = product_.epilogue.limit;
          gate = gate > limit ? limit : gate;
          up = 1.0f + (up > limit ? limit : up < -limit ? -limit : up);
          alpha = product_.epilogue.alpha;
        }
        sums[i] = __fdividef(gate, 1.0f + __expf(-alpha * gate)) * up;
      }
    }
    const T results[2] = {T(sums[0]), T(sums[1])};
    return *reinterpret_cast<const uint32_t*>(results);
  }

  const ExpertTilesParams& params_;
  const GroupedGemmParams& product_;
  const uint32_t shared_;
  int32_t* const first_row_;   // of each expert, and behind the last one
  int32_t* const first_tile_;  // as first_row_
  float* const bias_;
  const int num_k_blocks_, tiles_across_;
  int num_tiles_ = 0;
};

template <class T, bool kGated, bool kCodes>
__global__ void __launch_bounds__(ExpertTilesConfig<kCodes>::kThreads, 1)
    expert_tiles_kernel(const __grid_constant__ ExpertTilesParams params) {
  extern __shared__ __align__(1024) char shared[];
  ExpertTilesCta<T, kGated, kCodes>(params, shared).run();
}

template <class T, bool kGated, bool kCodes>
void launch_expert_tiles_instance(const ExpertTilesParams& params, int num_ctas, void* stream) {
  using Config = ExpertTilesConfig<kCodes>;
  constexpr auto kKernel = expert_tiles_kernel<T, kGated, kCodes>;
  allow_shared_memory<kKernel>(Config::kSharedBytes, "moe_experts: shared memory");
  launch_dependent<ExpertTilesParams>(kKernel, dim3(static_cast<unsigned>(num_ctas)), Config::kThreads,
                                      static_cast<size_t>(Config::kSharedBytes), stream, params,
                                      "moe_experts");
}

template <class T, bool kCodes>
void launch_expert_tiles(const ExpertTilesParams& params, int num_ctas, void* stream) {
  if (params.product.gated)
    launch_expert_tiles_instance<T, true, kCodes>(params, num_ctas, stream);
  else
    launch_expert_tiles_instance<T, false, kCodes>(params, num_ctas, stream);
}

}  // namespace attend::kernels::cuda::sm90
