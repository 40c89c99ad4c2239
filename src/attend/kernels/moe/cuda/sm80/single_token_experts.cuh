// Experts of a single token: bound by reading their weights, and by the fixed cost of each work tile.
//
//   tile        8 outputs of one expert, rows of gate and of up; or 16 outputs without gates; or 8 of two
//               experts. Together they are the 16 rows of operand A of mma.m16n8k16; the token's row is one
//               of the 8 columns of B
//   warps       8, or 12 for the sums of 9 to 12 experts, all alike: several share a tile's K-blocks. Each
//               loads W from memory into registers, kDepth K-blocks ahead
//   registers   80 at most: three CTAs of 8 warps fit on an SM, or two of 12
//   shared      the row of x, or a row per expert, in the order in which lanes read it; sums
//   bytes       W once; x once per CTA, from L2
//   bound       reading W; with mxfp4 dequantizing it
//
// A shared expert of the same shape, or of a multiple of its intermediate size, is computed as further
// experts of the token.
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
#include "attend/kernels/moe/cuda/sm80/single_token_experts_kernel.h"
#include "attend/kernels/moe/cuda/sm80/single_token_rows.cuh"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kSingleTokenWarps = 8, kManySingleTokenWarps = 12;
constexpr int single_token_ctas_per_sm(int num_warps) { return num_warps == kSingleTokenWarps ? 3 : 2; }

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

template <class T, class Rows, int kWarps>
class SingleTokenCta {
  static constexpr int kPieceInputs = 8, kSumsPerWarp = 2 * kSingleTokenOutputs, kThreads = 32 * kWarps;

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

  // Computes 8 outputs with gate and up, or 16 without gates, of an expert per kSlices warps.
  __device__ __forceinline__ void run_inner() {
    constexpr int kSlices = Rows::kGatedSlices, kTiles = kWarps / kSlices;
    const bool gated = !Rows::kPlain || params_.gated;
    const int num_outputs = gated ? kSingleTokenOutputs : kSingleTokenPlainOutputs;
    const int num_chunks = params_.out_features / num_outputs;
    const int tile = static_cast<int>(blockIdx.x) * kTiles + warp() / kSlices;
    const bool given = tile < num_pairs() * num_chunks;
    const int pair = given ? tile / num_chunks : 0, first = given ? tile % num_chunks * num_outputs : 0;
    ptx::griddepcontrol_wait();
    // Not before the wait: the next kernel reads data early that the previous kernel has written.
    ptx::launch_dependents();
    const int expert = pair < params_.top_k ? params_.experts[pair] : 0;
    // Loaded before W; loads issued after W would return late.
    load_ordered();
    SingleTokenTile<Rows> weights(inner_rows(pair, expert, gated, first + lane() / 4),
                                  given ? num_k_blocks_ : 0, warp() % kSlices, kSlices);
    // One thread of the tile's first warp per output.
    const bool writes = given && warp() % kSlices == 0 && lane() < num_outputs;
    LateBias biases[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (writes && (half == 0 || gated))
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
      if (gated) up += from[kSingleTokenOutputs];
    }
    gate *= Rows::kFromSums;
    up *= Rows::kFromSums;
    float value = expert_output(layout(), pair, gate, up, [&](float& gate_out, float& up_out) {
      add(gate_out, biases[0]);
      add(up_out, biases[1]);
    });
    if (!gated) value = value > 0.0f ? value * value : value == value ? 0.0f : value;  // NaN stays NaN
    // Written in the order in which the second product's lanes read them.
    const int place = gated ? Rows::place_in_piece(lane()) : lane();
    static_cast<T*>(params_.out)[int64_t{pair} * params_.out_features + first + place] = T(value);
  }

  // Computes 8 outputs of all experts, two experts per warp at a time.
  __device__ __forceinline__ void run_sums() {
    const int num_twos = (num_pairs() + 1) / 2, num_slices = max(1, kWarps / num_twos);
    const int first = static_cast<int>(blockIdx.x) * kSingleTokenOutputs;
    const int two = warp() / num_slices, slice = warp() % num_slices;
    const bool given = two < num_twos;
    const int low = given ? 2 * two : 0, high = min(low + 1, num_pairs() - 1);
    // The experts were written by a kernel that the first product waited for.
    SingleTokenTile<Rows> weights(sum_rows(low, high, first + lane() / 4), given ? num_k_blocks_ : 0, slice,
                                  num_slices);
    ptx::griddepcontrol_wait();
    ptx::launch_dependents();
    copy_x(num_pairs());
    const int thread = static_cast<int>(threadIdx.x);
    T* const out = static_cast<T*>(params_.out) + first + thread;
    float total = thread < kSingleTokenOutputs && params_.accumulate ? float(*out) : 0.0f;
    const int pair = thread / kSingleTokenOutputs, own = thread % kSingleTokenOutputs;
    LateBias bias;
    float weight = 1.0f;
    if (pair < params_.top_k) {
      bias.ask(params_.epilogue.bias, expert_weight_row(layout(), params_.experts[pair], 0, first + own));
      if (params_.weights != nullptr) weight = params_.weights[pair];
    } else if (pair < num_pairs() && params_.shared.gate != nullptr) {
      weight = 1.0f / (1.0f + expf(-*params_.shared.gate));
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
    if (pair < num_pairs()) {
      for (int i = 0; i < num_slices; ++i)
        value += sums_[(pair / 2 * num_slices + i) * kSumsPerWarp + pair % 2 * kSingleTokenOutputs + own];
      value = expert_output(layout(), pair, value, 0.0f, [&](float& sum, float&) { add(sum, bias); });
      value *= weight;
    }
    __syncthreads();
    if (pair < num_pairs()) sums_[thread] = value;
    __syncthreads();
    if (thread >= kSingleTokenOutputs) return;
    for (int i = 0; i < num_pairs(); ++i) total += sums_[i * kSingleTokenOutputs + thread];
    *out = T(total);
  }

 private:
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  // Experts of the token, and parts of the shared expert.
  __device__ __forceinline__ int num_pairs() const {
    return params_.top_k + (Rows::kPlain ? params_.shared.num_parts : 0);
  }

  // Rows of the first product for `output`: gate and up, or output and output + 8.
  __device__ __forceinline__ Rows inner_rows(int pair, int expert, bool gated, int output) const {
    int64_t low = 0, high = 0;
    const int part = pair - params_.top_k;
    if (part < 0) {
      low = expert_weight_row(layout(), expert, 0, output);
      high = gated ? expert_weight_row(layout(), expert, 1, output) : low + kSingleTokenOutputs;
    } else {
      low = int64_t{part} * params_.out_features + output;
      high = low + (gated ? params_.shared.num_parts * params_.out_features : kSingleTokenOutputs);
    }
    if constexpr (Rows::kPlain) {
      const auto* const weight =
          static_cast<const T*>(part < 0 ? params_.weight.data : params_.shared.weight);
      return Rows(weight + low * params_.in_features, weight + high * params_.in_features,
                  params_.in_features);
    } else {
      return Rows(params_.weight, low, high);
    }
  }
  // Rows of the second product for an output of two pairs.
  __device__ __forceinline__ Rows sum_rows(int low, int high, int output) const {
    if constexpr (Rows::kPlain) {
      return Rows(sum_row(low, output), sum_row(high, output), params_.in_features);
    } else {
      return Rows(params_.weight, int64_t{params_.experts[low]} * params_.out_features + output,
                  int64_t{params_.experts[high]} * params_.out_features + output);
    }
  }
  __device__ __forceinline__ const T* sum_row(int pair, int output) const {
    const int part = pair - params_.top_k;
    if (part >= 0)
      return static_cast<const T*>(params_.shared.weight) +
             (int64_t{output} * params_.shared.num_parts + part) * params_.in_features;
    const int64_t row = int64_t{params_.experts[pair]} * params_.out_features + output;
    return static_cast<const T*>(params_.weight.data) + row * params_.in_features;
  }

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
    for (int piece = static_cast<int>(threadIdx.x); piece < pieces_per_row_; piece += kThreads) {
      const uint4 x = piece < given ? static_cast<const uint4*>(params_.x)[piece] : uint4{};
      ptx::st_shared_16(x_ + Rows::place(piece) * 16, Rows::ordered(x));
    }
  }
  // Copies rows that are already in that order.
  __device__ __forceinline__ void copy_x(int num_rows) const {
    const int given = params_.in_features / kPieceInputs;
    const auto* const x = static_cast<const uint4*>(params_.x);
    for (int i = static_cast<int>(threadIdx.x); i < num_rows * pieces_per_row_; i += kThreads) {
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

// Products: the first one, or the second one by kWarps warps.
template <class T, class Rows, bool kSums, int kWarps>
__global__ void __launch_bounds__(32 * kWarps, single_token_ctas_per_sm(kWarps))
    single_token_experts_kernel(const __grid_constant__ SkinnyExpertsParams params) {
  extern __shared__ __align__(16) char x[];
  __shared__ float sums[kWarps * 2 * kSingleTokenOutputs];
  static_assert(kMaxSingleTokenTopK * kSingleTokenOutputs <= kWarps * 2 * kSingleTokenOutputs);
  SingleTokenCta<T, Rows, kWarps> cta(params, x, sums);
  if constexpr (kSums)
    cta.run_sums();
  else
    cta.run_inner();
}

template <class T, class Rows, bool kSums, int kWarps = kSingleTokenWarps>
void launch_single_token_product(const SkinnyExpertsParams& params, void* stream) {
  const int num_pairs = params.top_k + params.shared.num_parts;
  const int num_chunks =
      params.out_features / (kSums || params.gated ? kSingleTokenOutputs : kSingleTokenPlainOutputs);
  constexpr int kTiles = kWarps / Rows::kGatedSlices;
  const int num_ctas = kSums ? num_chunks : (num_pairs * num_chunks + kTiles - 1) / kTiles;
  const int64_t x_bytes = single_token_x_bytes(kSums ? num_pairs : 1, params.in_features);
  launch_dependent<SkinnyExpertsParams>(
      single_token_experts_kernel<T, Rows, kSums, kWarps>, dim3(static_cast<unsigned>(num_ctas)), 32 * kWarps,
      static_cast<size_t>(x_bytes + SingleTokenCta<T, Rows, kWarps>::kZeroBytes), stream, params,
      "moe_experts");
}

template <class T>
void launch_single_token_experts(const SkinnyExpertsParams& params, void* stream) {
  using Rows = SingleTokenPlainRows<T>;
  if (!params.sums) return launch_single_token_product<T, Rows, false>(params, stream);
  // Two slices of K for each two experts, if the warps suffice.
  const int num_pairs = params.top_k + params.shared.num_parts;
  if (num_pairs > kSingleTokenWarps && num_pairs <= kManySingleTokenWarps)
    return launch_single_token_product<T, Rows, true, kManySingleTokenWarps>(params, stream);
  launch_single_token_product<T, Rows, true>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
