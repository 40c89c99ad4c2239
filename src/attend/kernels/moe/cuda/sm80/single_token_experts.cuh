// Experts of a single token: bound by reading their weights, and by the fixed cost of each work tile.
//
//   tile        8 outputs of one expert, rows of gate and of up; or of two experts. Together they are the 16
//               rows of operand A of mma.m16n8k16; the token's row is one of the 8 columns of B
//   warps       8, all alike: several share a tile's K-blocks. Each loads W from memory into registers,
//               kDepth
//               K-blocks ahead
//   registers   80 at most: three CTAs fit on an SM
//   shared      the row of x, or a row per expert, in the order in which lanes read it; sums
//   bytes       W once; x once per CTA, from L2
//   bound       reading W; with mxfp4 dequantizing it
//
// All experts of the token are distinct, and available before the first product starts. So nothing is sorted,
// and the second product loads W while the first one finishes. A CTA of the second product has all experts of
// its outputs, and writes their sum.
#pragma once

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/global_memory.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/moe/cuda/common/grouped_tile.cuh"
#include "attend/kernels/moe/cuda/common/late_bias.cuh"
#include "attend/kernels/moe/cuda/sm80/mxfp4_sums.cuh"
#include "attend/kernels/moe/cuda/sm80/single_token_experts_kernel.h"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kSingleTokenWarps = 8, kSingleTokenThreads = 32 * kSingleTokenWarps,
                     kSingleTokenCtasPerSm = 3;

// A lane's part of two rows of W, and the layout of its pieces of x, 16 bytes each. One policy class per
// format. This one has elements of the dtype of x: a lane has 8 neighboring inputs of each row.
template <class T>
class SingleTokenPlainRows {
 public:
  static constexpr int kInputs = 32, kDepth = 5;
  static constexpr bool kLanesSum = false;  // true if each of a row's four lanes has a separate sum
  static constexpr float kFromSums = 1.0f;  // final factor of the sums
  static constexpr int kGatedSlices = 4;    // warps that share K
  struct Block {
    uint4 low, high;
  };

  __device__ SingleTokenPlainRows(const QuantizedWeight& weight, int64_t low_row, int64_t high_row)
      : in_features_(weight.in_features),
        low_(static_cast<const T*>(weight.data) + low_row * in_features_ + first_input()),
        high_(static_cast<const T*>(weight.data) + high_row * in_features_ + first_input()) {}

  __device__ __forceinline__ Block load(int k_block) const {
    const int input = k_block * kInputs;
    if (input + first_input() >= in_features_) return {};
    return {ptx::ld_global_16_by_policy(low_ + input, policy_),
            ptx::ld_global_16_by_policy(high_ + input, policy_)};
  }
  static __device__ __forceinline__ int place(int piece) { return piece; }
  // Position of an input among its eight, and the eight inputs in that order.
  static __device__ __forceinline__ int place_in_piece(int input) { return input; }
  static __device__ __forceinline__ uint4 ordered(const uint4& x) { return x; }

  // A lane's 8 inputs are two mma steps; the order of inputs within a K-block is the same for both operands.
  static __device__ __forceinline__ void multiply(const Block& block, uint32_t x_row, int k_block,
                                                  float (&sums)[4]) {
    const uint4 x = ptx::ld_shared_16(x_row + (k_block * 4 + threadIdx.x % 4) * 16);
    const uint32_t even[4] = {block.low.x, block.high.x, block.low.y, block.high.y},
                   odd[4] = {block.low.z, block.high.z, block.low.w, block.high.w};
    ptx::mma_m16n8k16(sums, even, x.x, x.y, T{});
    ptx::mma_m16n8k16(sums, odd, x.z, x.w, T{});
  }

 private:
  __device__ static int first_input() { return static_cast<int>(threadIdx.x) % 4 * 8; }

  int in_features_;
  const T* low_;
  const T* high_;
  // W is read once. Data that other kernels of the step read again stays in L2.
  const uint64_t policy_ = ptx::createpolicy_evict_first();
};

// mxfp4: a lane has 32 neighboring inputs of each row, which share a scale. The single row of x has separate
// columns for each of the four lanes of a row of W, and zeros elsewhere: columns 2 j and 2 j + 1 contain the
// inputs of lane j only. So a lane's sums are those of its own rows and inputs, and are multiplied by their
// scale (mxfp4_sums.cuh).
template <int kDepth_>
class SingleTokenMxFp4Rows {
 public:
  static constexpr int kInputs = 128, kDepth = kDepth_;
  static constexpr bool kLanesSum = true;
  static constexpr int kGatedSlices = 2;
  static constexpr float kFromSums = MxFp4Sums::kFromSums;
  struct Block {
    uint4 low, high;
    uint32_t low_exponent, high_exponent;
  };

  __device__ SingleTokenMxFp4Rows(const QuantizedWeight& weight, int64_t low_row, int64_t high_row)
      : in_features_(weight.in_features),
        low_(static_cast<const uint8_t*>(weight.data) + low_row * (in_features_ / 2) + first_input() / 2),
        high_(static_cast<const uint8_t*>(weight.data) + high_row * (in_features_ / 2) + first_input() / 2),
        low_scales_(static_cast<const uint8_t*>(weight.scales) + low_row * weight.scale_columns +
                    threadIdx.x % 4),
        high_scales_(static_cast<const uint8_t*>(weight.scales) + high_row * weight.scale_columns +
                     threadIdx.x % 4) {}

  __device__ __forceinline__ Block load(int k_block) const {
    const int input = k_block * kInputs;
    if (input + first_input() >= in_features_) return {};
    return {__ldg(reinterpret_cast<const uint4*>(low_ + input / 2)),
            __ldg(reinterpret_cast<const uint4*>(high_ + input / 2)), __ldg(low_scales_ + k_block * 4),
            __ldg(high_scales_ + k_block * 4)};
  }
  // The four lanes' pieces for one word of quantized values are adjacent.
  static __device__ __forceinline__ int place(int piece) {
    return piece / 16 * 16 + piece % 4 * 4 + piece / 4 % 4;
  }
  static __device__ __forceinline__ int place_in_piece(int input) { return MxFp4Sums::place_in_piece(input); }
  static __device__ __forceinline__ uint4 ordered(const uint4& x) {
    return MxFp4Sums::raised(MxFp4Sums::in_pairs(x));
  }

  // `x_row`: address of this lane's column, or of a K-block of zeros.
  static __device__ __forceinline__ void multiply(const Block& block, uint32_t x_row, int k_block,
                                                  float (&sums)[4]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float products[4] = {};
    MxFp4Sums::add_group(block.low, block.high,
                         x_row + lane % 4 * 16 + (lane / 8 == lane % 4 ? k_block * 256 : 0), products);
    sums[0] = fmaf(products[0], MxFp4Sums::to_scale(block.low_exponent), sums[0]);
    sums[2] = fmaf(products[2], MxFp4Sums::to_scale(block.high_exponent), sums[2]);
  }

 private:
  __device__ static int first_input() { return static_cast<int>(threadIdx.x) % 4 * 32; }

  int in_features_;
  const uint8_t* low_;
  const uint8_t* high_;
  const uint8_t* low_scales_;
  const uint8_t* high_scales_;
};

// K-blocks of a warp for a tile: slice, slice + num_slices, ...
template <class Rows>
class SingleTokenTile {
 public:
  __device__ __forceinline__ SingleTokenTile(const Rows& rows, int num_k_blocks, int slice, int num_slices)
      : rows_(rows), num_k_blocks_(num_k_blocks), num_slices_(num_slices), k_block_(slice) {
#pragma unroll
    for (int i = 0; i < Rows::kDepth; ++i) ask(i, slice + i * num_slices);
  }

  // `x_row`: address of this lane's column of x.
  __device__ __forceinline__ void multiply(uint32_t x_row, float (&sums)[4]) {
    while (k_block_ < num_k_blocks_) {
#pragma unroll
      for (int i = 0; i < Rows::kDepth; ++i) {
        if (k_block_ >= num_k_blocks_) break;
        Rows::multiply(blocks_[i], x_row, k_block_, sums);
        ask(i, k_block_ + Rows::kDepth * num_slices_);
        k_block_ += num_slices_;
      }
    }
  }

 private:
  __device__ __forceinline__ void ask(int i, int k_block) {
    if (k_block < num_k_blocks_) blocks_[i] = rows_.load(k_block);
  }

  Rows rows_;
  int num_k_blocks_, num_slices_;
  int k_block_;
  typename Rows::Block blocks_[Rows::kDepth];
};

template <class T, class Rows>
class SingleTokenCta {
  static constexpr int kPieceInputs = 8, kSumsPerWarp = 2 * kSingleTokenOutputs;

 public:
  static constexpr int kZeroBytes = Rows::kLanesSum ? 256 : 0;  // before x

  __device__ SingleTokenCta(const SkinnyExpertsParams& params, char* x, float* sums)
      : params_(params),
        x_(ptx::shared_address(x) + kZeroBytes),
        sums_(sums),
        num_k_blocks_((params.in_features + Rows::kInputs - 1) / Rows::kInputs),
        pieces_per_row_(num_k_blocks_ * Rows::kInputs / kPieceInputs) {
    if (Rows::kLanesSum && threadIdx.x < kZeroBytes / 16)
      ptx::st_shared_16(x_ - kZeroBytes + static_cast<int>(threadIdx.x) * 16, uint4{});
  }

  // Computes gate and up of 8 outputs of an expert per kSlices warps.
  __device__ __forceinline__ void run_gated() {
    constexpr int kSlices = Rows::kGatedSlices, kTiles = kSingleTokenWarps / kSlices;
    const int num_chunks = params_.out_features / kSingleTokenOutputs;
    const int tile = static_cast<int>(blockIdx.x) * kTiles + warp() / kSlices;
    const bool given = tile < params_.top_k * num_chunks;
    const int pair = given ? tile / num_chunks : 0,
              first = given ? tile % num_chunks * kSingleTokenOutputs : 0;
    ptx::griddepcontrol_wait();
    // Not before the wait: the next kernel reads data early that the previous kernel has written.
    ptx::launch_dependents();
    const int expert = params_.experts[pair];
    // Loaded before W; loads issued after W would return late.
    load_ordered();
    SingleTokenTile<Rows> weights(
        Rows(params_.weight, expert_weight_row(layout(), expert, 0, first + lane() / 4),
             expert_weight_row(layout(), expert, 1, first + lane() / 4)),
        given ? num_k_blocks_ : 0, warp() % kSlices, kSlices);
    // One thread of the tile's first warp per output.
    const bool writes = given && warp() % kSlices == 0 && lane() < kSingleTokenOutputs;
    LateBias biases[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (writes)
        biases[half].ask(params_.epilogue.bias, expert_weight_row(layout(), expert, half, first + lane()));
    __syncthreads();
    float sums[4] = {};
    weights.multiply(own_column_or_zeros(x_), sums);
    add_lanes(sums[0], sums[2]);
    if (lane() % 4 == 0) {
      sums_[warp() * kSumsPerWarp + lane() / 4] = sums[0];
      sums_[warp() * kSumsPerWarp + kSingleTokenOutputs + lane() / 4] = sums[2];
    }
    __syncthreads();
    if (!writes) return;
    float gate = 0.0f, up = 0.0f;
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) {
      const float* const from = sums_ + (warp() + slice) * kSumsPerWarp + lane();
      gate += from[0];
      up += from[kSingleTokenOutputs];
    }
    gate *= Rows::kFromSums;
    up *= Rows::kFromSums;
    // Written in the order in which the second product's lanes read them.
    static_cast<T*>(
        params_.out)[int64_t{pair} * params_.out_features + first + Rows::place_in_piece(lane())] =
        T(expert_output(layout(), pair, gate, up, [&](float& gate_out, float& up_out) {
          add(gate_out, biases[0]);
          add(up_out, biases[1]);
        }));
  }

  // Computes 8 outputs of all experts, two experts per warp at a time.
  __device__ __forceinline__ void run_sums() {
    const int num_twos = (params_.top_k + 1) / 2, num_slices = max(1, kSingleTokenWarps / num_twos);
    const int first = static_cast<int>(blockIdx.x) * kSingleTokenOutputs;
    const int two = warp() / num_slices, slice = warp() % num_slices;
    const bool given = two < num_twos;
    const int low = given ? 2 * two : 0, high = min(low + 1, params_.top_k - 1);
    const int64_t output = first + lane() / 4;
    // The experts were written by a kernel that the first product waited for.
    const Rows rows(params_.weight, int64_t{params_.experts[low]} * params_.out_features + output,
                    int64_t{params_.experts[high]} * params_.out_features + output);
    SingleTokenTile<Rows> weights(rows, given ? num_k_blocks_ : 0, slice, num_slices);
    ptx::griddepcontrol_wait();
    ptx::launch_dependents();
    copy_x(params_.top_k);
    const int thread = static_cast<int>(threadIdx.x);
    T* const out = static_cast<T*>(params_.out) + first + thread;
    float total = thread < kSingleTokenOutputs && params_.accumulate ? float(*out) : 0.0f;
    const int pair = thread / kSingleTokenOutputs, own = thread % kSingleTokenOutputs;
    LateBias bias;
    float weight = 1.0f;
    if (pair < params_.top_k) {
      bias.ask(params_.epilogue.bias, expert_weight_row(layout(), params_.experts[pair], 0, first + own));
      if (params_.weights != nullptr) weight = params_.weights[pair];
    }
    ptx::cp_async_wait_group<0>();
    __syncthreads();
    float sums[4] = {};
    // Columns of x alternate between the two experts.
    weights.multiply(x_ + (lane() / 4 % 2 == 0 ? low : high) * pieces_per_row_ * 16, sums);
    if (lane() % 4 == 0) {
      sums_[warp() * kSumsPerWarp + lane() / 4] = sums[0];
      sums_[warp() * kSumsPerWarp + kSingleTokenOutputs + lane() / 4] = sums[3];
    }
    __syncthreads();
    float value = 0.0f;
    if (pair < params_.top_k) {
      for (int i = 0; i < num_slices; ++i)
        value += sums_[(pair / 2 * num_slices + i) * kSumsPerWarp + pair % 2 * kSingleTokenOutputs + own];
      value = expert_output(layout(), pair, value, 0.0f, [&](float& sum, float&) { add(sum, bias); });
      value *= weight;
    }
    __syncthreads();
    if (pair < params_.top_k) sums_[thread] = value;
    __syncthreads();
    if (thread >= kSingleTokenOutputs) return;
    for (int i = 0; i < params_.top_k; ++i) total += sums_[i * kSingleTokenOutputs + thread];
    *out = T(total);
  }

 private:
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  __device__ __forceinline__ void add(float& sum, const LateBias& bias) const {
    if (params_.epilogue.bias.data != nullptr) sum += bias.number(params_.epilogue.bias);
  }

  // If a row's lanes have separate sums, a lane's column has its own inputs; the other columns read zeros,
  // which are stored before x.
  __device__ __forceinline__ uint32_t own_column_or_zeros(uint32_t x_row) const {
    return !Rows::kLanesSum || lane() / 8 == lane() % 4 ? x_row : x_ - kZeroBytes;
  }
  __device__ __forceinline__ static void add_lanes(float& low, float& high) {
    if constexpr (Rows::kLanesSum)
#pragma unroll
      for (int step = 1; step < 4; step *= 2) {
        low += __shfl_xor_sync(0xffffffffu, low, step);
        high += __shfl_xor_sync(0xffffffffu, high, step);
      }
  }

  // Parameters of a grouped GEMM that the epilogue reads.
  __device__ __forceinline__ GroupedGemmParams layout() const {
    GroupedGemmParams layout;
    layout.gated = params_.gated;
    layout.alternating = params_.alternating;
    layout.out_features = params_.out_features;
    layout.epilogue = params_.epilogue;
    return layout;
  }

  // Loads the row of x, padded with zeros, and reorders its pieces of eight inputs.
  __device__ __forceinline__ void load_ordered() const {
    const int given = params_.in_features / kPieceInputs;
#pragma unroll 2
    for (int piece = static_cast<int>(threadIdx.x); piece < pieces_per_row_; piece += kSingleTokenThreads) {
      const uint4 x = piece < given ? static_cast<const uint4*>(params_.x)[piece] : uint4{};
      ptx::st_shared_16(x_ + Rows::place(piece) * 16, Rows::ordered(x));
    }
  }
  // Copies rows that are already in that order.
  __device__ __forceinline__ void copy_x(int num_rows) const {
    const int given = params_.in_features / kPieceInputs;
    const auto* const x = static_cast<const uint4*>(params_.x);
    for (int i = static_cast<int>(threadIdx.x); i < num_rows * pieces_per_row_; i += kSingleTokenThreads) {
      const int row = i / pieces_per_row_, piece = i - row * pieces_per_row_;
      ptx::cp_async_16(x_ + (row * pieces_per_row_ + Rows::place(piece)) * 16,
                       x + (piece < given ? row * given + piece : 0), piece < given);
    }
    ptx::cp_async_commit_group();
  }

  const SkinnyExpertsParams& params_;
  const uint32_t x_;
  float* const sums_;  // per warp
  const int num_k_blocks_, pieces_per_row_;
};

template <class T, class Rows, bool kGated>
__global__ void __launch_bounds__(kSingleTokenThreads, kSingleTokenCtasPerSm)
    single_token_experts_kernel(const __grid_constant__ SkinnyExpertsParams params) {
  extern __shared__ __align__(16) char x[];
  __shared__ float sums[kSingleTokenWarps * 2 * kSingleTokenOutputs];
  static_assert(kMaxSingleTokenTopK * kSingleTokenOutputs <= kSingleTokenWarps * 2 * kSingleTokenOutputs);
  SingleTokenCta<T, Rows> cta(params, x, sums);
  if constexpr (kGated)
    cta.run_gated();
  else
    cta.run_sums();
}

template <class T, class Rows, bool kGated>
void launch_single_token_product(const SkinnyExpertsParams& params, void* stream) {
  const int num_chunks = params.out_features / kSingleTokenOutputs;
  constexpr int kTiles = kSingleTokenWarps / Rows::kGatedSlices;
  const int num_ctas = kGated ? (params.top_k * num_chunks + kTiles - 1) / kTiles : num_chunks;
  const int64_t x_bytes = single_token_x_bytes(kGated ? 1 : params.top_k, params.in_features);
  launch_dependent<SkinnyExpertsParams>(single_token_experts_kernel<T, Rows, kGated>,
                                        dim3(static_cast<unsigned>(num_ctas)), kSingleTokenThreads,
                                        static_cast<size_t>(x_bytes + SingleTokenCta<T, Rows>::kZeroBytes),
                                        stream, params, "moe_experts");
}

template <class T>
void launch_single_token_experts(const SkinnyExpertsParams& params, void* stream) {
  params.gated ? launch_single_token_product<T, SingleTokenPlainRows<T>, true>(params, stream)
               : launch_single_token_product<T, SingleTokenPlainRows<T>, false>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
