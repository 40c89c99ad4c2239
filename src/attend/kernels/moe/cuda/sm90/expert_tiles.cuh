// Grouped GEMM for many rows on sm_90a: x W^T of each expert for its rows, with wgmma. Rows of x are gathered
// with cp.async, W is loaded with TMA. Persistent CTAs.
//
//   tile        128 rows of one expert x 256 rows of W (gated: gate and up of 128 outputs); K-blocks of 64
//   warps       2 consumer warpgroups multiply 64 rows of x each (A = x, B = W: wgmma m64n256k16); a producer
//               warpgroup gathers x, and one of its threads loads W
//   registers   232 per consumer thread, 40 per producer thread (setmaxnreg), launched with 168
//   shared      4 stages of 48 KB, mbarriers, biases, first rows and tiles of the experts
//   bytes       per stage: 16 KB of x, 32 KB of W
//   bound       tensor cores; with few rows per expert reading W
//
// If gated, a thread has gate and up of the same outputs, 64 accumulators apart. Threads that wait for
// cp.async data also fence it, to make it visible to wgmma.
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
#include "attend/kernels/gemm/cuda/sm90/cta_roles.cuh"
#include "attend/kernels/gemm/cuda/sm90/k_block_product.cuh"
#include "attend/kernels/moe/cuda/common/grouped_tile.cuh"
#include "attend/kernels/moe/cuda/sm90/expert_tiles_kernel.h"

namespace attend::kernels::cuda::sm90 {

struct ExpertTilesConfig {
  static constexpr int kWarpgroups = kExpertTileRows / 64, kConsumerWarps = 4 * kWarpgroups;
  static constexpr int kProducerThreads = 128, kProducerWarps = kProducerThreads / 32;
  static constexpr int kThreads = 128 * kWarpgroups + kProducerThreads;
  static constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
  static_assert(128 * kWarpgroups * kConsumerRegisters + kProducerThreads * kProducerRegisters <=
                kThreads * (65536 / kThreads / 8 * 8));
  static constexpr int kXBytes = kExpertTileRows * kRowBytes, kWeightBytes = kExpertTileWeights * kRowBytes;
  static constexpr int kBoxBytes = kExpertBoxRows * kRowBytes;
  static constexpr int kStageBytes = kXBytes + kWeightBytes, kStages = 4;
  using Stages = KBlockStages<kStages, kXBytes, kWeightBytes>;
  static constexpr int kBarrierBytes = 128, kMaxExperts = 512;
  static constexpr int kBeginBytes = 2 * (kMaxExperts + 1) * static_cast<int>(sizeof(int32_t));
  // Biases of each row of W, for the current and the next tile.
  static constexpr int kBiasBytes = 2 * kExpertTileWeights * static_cast<int>(sizeof(float));
  static constexpr int kBiasAt = kStages * kStageBytes + kBarrierBytes;
  static constexpr int kSharedBytes = kBiasAt + kBiasBytes + kBeginBytes;
  static constexpr int kAccumulators = kExpertTileWeights / 2;                   // per thread
  static constexpr int kXCopies = kExpertTileRows * kPieces / kProducerThreads;  // per thread and K-block
  static_assert(16 * kStages <= kBarrierBytes && kSharedBytes <= 227 << 10);
};

// Activation of a tile's gate and up.
enum class Gate : uint8_t { kSilu, kGelu, kClamped };

template <class T, bool kGated>
class ExpertTilesCta {
  using Config = ExpertTilesConfig;
  using Accumulators = float[Config::kAccumulators];
  static constexpr int kOutputs = kGated ? kExpertTileWeights / 2 : kExpertTileWeights;  // per tile

  struct Tile {
    int expert, first_row, end_row, first_output;
  };

 public:
  __device__ __forceinline__ ExpertTilesCta(const ExpertTilesParams& params, char* shared)
      : params_(params),
        product_(params.product),
        stages_{ptx::shared_address(shared)},
        first_row_(reinterpret_cast<int32_t*>(shared + Config::kBiasAt + Config::kBiasBytes)),
        first_tile_(first_row_ + Config::kMaxExperts + 1),
        bias_(reinterpret_cast<float*>(shared + Config::kBiasAt)),
        num_k_blocks_((product_.in_features + kBlockK - 1) / kBlockK),
        tiles_across_((product_.out_features + kOutputs - 1) / kOutputs) {}

  __device__ __forceinline__ void run() {
    if (threadIdx.x == 0) stages_.init_barriers(Config::kProducerWarps + 1, Config::kConsumerWarps);
    wait_for_inputs();
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
  // Tiles of the same rows are neighbors, followed by tiles of the same expert: they run concurrently and
  // share x and W in L2.
  __device__ __forceinline__ Tile tile_at(int i) const {
    const int row_tile = i / tiles_across_;
    int expert = 0, end = product_.num_experts;  // finds the last expert with a first tile <= row_tile
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
    static_assert(kRowsAtOnce % 8 == 0, "a thread's pieces have the same swizzle");
    const uint32_t to = swizzled_piece(row, piece);
    const uint64_t policy = ptx::createpolicy_evict_last();
    PipelineState state;
    for (int i = static_cast<int>(blockIdx.x); i < num_tiles_; i += static_cast<int>(gridDim.x)) {
      const Tile tile = tile_at(i);
      int32_t x_rows[Config::kXCopies];
#pragma unroll
      for (int copy = 0; copy < Config::kXCopies; ++copy) {
        // Rows past the end repeat the last one; their results are not written.
        const int from = min(tile.first_row + row + copy * kRowsAtOnce, tile.end_row - 1);
        x_rows[copy] = product_.row_token != nullptr ? product_.row_token[from] : from;
      }
      const int64_t weight_row = expert_weight_row(product_, tile.expert, 0, tile.first_output);
      const int64_t to_second = kGated ? product_.out_features : kExpertBoxRows;
#pragma unroll 1
      for (int k_block = 0; k_block < num_k_blocks_; ++k_block) {
        ptx::mbarrier_wait(stages_.empty(state.stage), state.parity ^ 1);
        if (thread == 0) {
          ptx::mbarrier_arrive_expect_tx(stages_.full(state.stage), Config::kWeightBytes);
          for (int half = 0; half < 2; ++half)
            ptx::cp_async_bulk_tensor(stages_.weights_at(state.stage) + half * Config::kBoxBytes,
                                      &params_.weight, k_block * kBlockK,
                                      static_cast<int>(weight_row + half * to_second),
                                      stages_.full(state.stage), policy);
        }
        const int input = k_block * kBlockK + piece * 8;
        const bool given = input < product_.in_features;
#pragma unroll
        for (int copy = 0; copy < Config::kXCopies; ++copy)
          ptx::cp_async_16(stages_.x_at(state.stage) + to + copy * kRowsAtOnce * kRowBytes,
                           static_cast<const char*>(product_.x) +
                               2 * (given ? x_rows[copy] * product_.x_stride + input : 0),
                           given);
        ptx::cp_async_mbarrier_arrive(stages_.full(state.stage));
        __syncwarp();
        if (thread % 32 == 0) ptx::mbarrier_arrive(stages_.full(state.stage));
        state.advance(Config::kStages);
      }
    }
  }

  __device__ __forceinline__ void release(int stage) const {
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(stages_.empty(stage));
  }

  __device__ __forceinline__ void consume(int warpgroup) const {
    PipelineState state;
    int bias_buffer = 0;
    for (int i = static_cast<int>(blockIdx.x); i < num_tiles_; i += static_cast<int>(gridDim.x)) {
      float* const bias = bias_ + bias_buffer * kExpertTileWeights;
      bias_buffer ^= 1;
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
        ptx::mbarrier_wait(stages_.full(state.stage), state.parity);
        ptx::fence_proxy_async();
        const uint64_t x = ptx::smem_descriptor(stages_.x_at(state.stage) + warpgroup * 64 * kRowBytes);
        const uint64_t weights = ptx::smem_descriptor(stages_.weights_at(state.stage));
        multiply_k_block<T>(accumulators, x, weights, k_block > 0);
        // The previous K-block's wgmma has finished, so its stage is free.
        ptx::wgmma_wait_group<1>();
        if (k_block > 0) release(last_stage);
        last_stage = state.stage;
        state.advance(Config::kStages);
      }
      ptx::wgmma_wait_group<0>();
      ptx::fence_operand(accumulators);
      release(last_stage);
      // The bias is available. The thread that writes the bias of the tile after the next passes this barrier
      // first.
      ptx::barrier_sync(kConsumerBarrier, 128 * Config::kWarpgroups);
      if (kGated && product_.epilogue.clamped)
        write<Gate::kClamped>(tile_at(i), warpgroup, bias, accumulators);
      else if (kGated && product_.epilogue.gelu)
        write<Gate::kGelu>(tile_at(i), warpgroup, bias, accumulators);
      else
        write<Gate::kSilu>(tile_at(i), warpgroup, bias, accumulators);
    }
  }

  // Skips the K-blocks of a tile, for a warpgroup without rows. The tensor cores then serve the other one
  // only.
  __device__ __forceinline__ void pass(PipelineState& state) const {
#pragma unroll 1
    for (int k_block = 0; k_block < num_k_blocks_; ++k_block) {
      ptx::mbarrier_wait(stages_.full(state.stage), state.parity);
      release(state.stage);
      state.advance(Config::kStages);
    }
  }
  static constexpr int kConsumerBarrier = 1;

  // Loads biases, one row of W of the tile per thread. If gated, gate rows come before up rows.
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

  // Writes outputs. For every eight outputs, a thread has outputs 2 (l % 4) and 2 (l % 4) + 1, of row l / 4
  // of its warp's 16 and of the row eight below. For two groups of eight, neighboring lanes exchange values,
  // so that one writes four outputs of the first and the other four of the second: whole sectors of 32 bytes.
  // The loop is fully unrolled to minimize the instructions per output.
  template <Gate kGate>
  __device__ __forceinline__ void write(const Tile& tile, int warpgroup, const float* bias,
                                        const Accumulators& accumulators) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int lane_first_row =
        tile.first_row + warpgroup * 64 + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
    const bool odd = lane % 2 == 1;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane_first_row + 8 * half;
      const bool given = row < tile.end_row;
      const float input_weight = given ? row_input_weight(row) : 1.0f;
      T* const to = static_cast<T*>(product_.out) + int64_t{row} * product_.out_features;
#pragma unroll
      for (int eight = 0; eight < kOutputs / 8; eight += 2) {
        const int output = tile.first_output + (eight + (odd ? 1 : 0)) * 8 + lane % 4 / 2 * 4;
        const uint32_t first = make_pair<kGate>(eight, half, input_weight, bias, accumulators),
                       second = make_pair<kGate>(eight + 1, half, input_weight, bias, accumulators);
        const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? first : second, 1);
        if (given && output < product_.out_features)
          *reinterpret_cast<uint2*>(to + output) = odd ? make_uint2(got, second) : make_uint2(first, got);
      }
    }
  }
  __device__ __forceinline__ float row_input_weight(int row) const {
    const ExpertEpilogue& rule = product_.epilogue;
    return rule.input_weights != nullptr ? rule.input_weights[rule.row_pair[row]] : 1.0f;
  }
  // Computes two neighboring outputs.
  template <Gate kGate>
  __device__ __forceinline__ uint32_t make_pair(int eight, int half, float input_weight, const float* bias,
                                                const Accumulators& accumulators) const {
    const int column = eight * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
    // Read at their use: loading all of them ahead would exceed the registers.
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
        float gate = sums[i], up = ups[i], exponent = gate;
        if constexpr (kGate == Gate::kClamped) {
          const float limit = product_.epilogue.limit;
          gate = gate > limit ? limit : gate;
          up = 1.0f + (up > limit ? limit : up < -limit ? -limit : up);
          exponent = product_.epilogue.alpha * gate;
        }
        if constexpr (kGate == Gate::kGelu) exponent = gelu_exponent(gate);
        sums[i] = __fdividef(gate, 1.0f + __expf(-exponent)) * up;
      }
    }
    const T results[2] = {T(sums[0]), T(sums[1])};
    return *reinterpret_cast<const uint32_t*>(results);
  }

  const ExpertTilesParams& params_;
  const GroupedGemmParams& product_;
  const Config::Stages stages_;
  int32_t* const first_row_;   // per expert, and the end of the last one
  int32_t* const first_tile_;  // same layout as first_row_
  float* const bias_;
  const int num_k_blocks_, tiles_across_;
  int num_tiles_ = 0;
};

template <class T, bool kGated>
__global__ void __launch_bounds__(ExpertTilesConfig::kThreads, 1)
    expert_tiles_kernel(const __grid_constant__ ExpertTilesParams params) {
  extern __shared__ __align__(1024) char shared[];
  ExpertTilesCta<T, kGated>(params, shared).run();
}

template <class T, bool kGated>
void launch_expert_tiles_instance(const ExpertTilesParams& params, int num_ctas, void* stream) {
  using Config = ExpertTilesConfig;
  constexpr auto kKernel = expert_tiles_kernel<T, kGated>;
  allow_shared_memory<kKernel>(Config::kSharedBytes, "moe_experts: shared memory");
  launch_dependent<ExpertTilesParams>(kKernel, dim3(static_cast<unsigned>(num_ctas)), Config::kThreads,
                                      static_cast<size_t>(Config::kSharedBytes), stream, params,
                                      "moe_experts");
}

template <class T>
void launch_expert_tiles(const ExpertTilesParams& params, int num_ctas, void* stream) {
  if (params.product.gated)
    launch_expert_tiles_instance<T, true>(params, num_ctas, stream);
  else
    launch_expert_tiles_instance<T, false>(params, num_ctas, stream);
}

}  // namespace attend::kernels::cuda::sm90
