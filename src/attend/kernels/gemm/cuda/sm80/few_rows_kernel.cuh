// Dense layers of few rows: the kernel and its launch, for x and weights of type T.
#pragma once

#include <algorithm>
#include <type_traits>

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/gemm/cuda/sm80/few_rows_kernel.h"
#include "attend/kernels/gemm/cuda/sm80/few_rows_out.cuh"
#include "attend/kernels/gemm/cuda/sm80/few_rows_ring.cuh"

namespace attend::kernels::cuda {

constexpr int kFewRowsThreads = 32 * kFewRowsWarps;

__device__ inline float squares_of(const uint4& x) {
  const auto* const pairs = reinterpret_cast<const __nv_bfloat162*>(&x);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __bfloat1622float2(pairs[i]);
    sum += pair.x * pair.x + pair.y * pair.y;
  }
  return sum;
}

// Rounded to bf16 once.
__device__ inline uint4 times(const uint4& x, const uint4& norm) {
  uint4 product;
  const auto* const pairs = reinterpret_cast<const __nv_bfloat162*>(&x);
  const auto* const weights = reinterpret_cast<const __nv_bfloat162*>(&norm);
#pragma unroll
  for (int i = 0; i < 4; ++i) reinterpret_cast<__nv_bfloat162*>(&product)[i] = __hmul2(pairs[i], weights[i]);
  return product;
}

// A CTA takes a share of the output features, a few groups of eight at a time; its warps take turns at chunks
// of the inputs and add their sums in the end, always in the same order, so a row's bits depend on the row
// alone. `Out` says what becomes of them (SumsOut). When it `kMeets`, outputs wait for those of other CTAs,
// and each CTA goes through its share in one pass.
template <class T, int kGroups, int kTokens, int kSharedBytes, class Out>
class FewRowsCta {
  static constexpr int kGroupSums = kTokens * kFeatures;
  // Of the warps, and their sums of squares.
  static constexpr int kSumBytes =
      (kFewRowsWarps * (kGroups * kGroupSums + kTokens) * static_cast<int>(sizeof(float)) + 127) / 128 * 128;
  using Ring = FewRowsRing<kGroups, kTokens, kSharedBytes - kSumBytes, Out::kHeads>;
  static constexpr int kTiles = Ring::kTiles;
  static constexpr int kPairs = (kTiles + 1) / 2;  // of tiles: what the tensor cores take as A
  static constexpr bool kCanNorm = std::is_same_v<T, __nv_bfloat16>;

 public:
  static constexpr int kMaxSharedBytes = kSumBytes + Ring::shared_bytes(Ring::kSlots);
  static int shared_bytes(int chunks_of_warp) { return kSumBytes + Ring::shared_bytes(chunks_of_warp); }

  __device__ FewRowsCta(const FewRowsParams& params, const Out& out, char* shared)
      : params_(params),
        out_(out),
        share_(params, kGroups),
        ring_(params, share_, shared + kSumBytes),
        partial_(reinterpret_cast<float*>(shared)),
        squares_(partial_ + kFewRowsWarps * kGroups * kGroupSums) {}

  // Weights do not depend on the kernel before, so the first of them come while it ends.
  __device__ __forceinline__ void run() {
    ring_.start();
    bool first = true;
    for (int unit = share_.begin; unit < share_.end; unit += share_.at_once) {
      Early early;
      ask(unit, early);
      Sums sums = {};
      for (int chunk = warp_; chunk < share_.num_chunks; chunk += kFewRowsWarps) multiply(first, sums);
      keep(first, sums);
      __syncthreads();
      write(unit, early);
      __syncthreads();
      first = false;
    }
  }

 private:
  using Sums = float[kGroups][kPairs][4];

  // The tensor cores take 16 inputs together, one after another.
  __device__ __forceinline__ void multiply(bool first, Sums& sums) {
    typename Ring::Chunk chunk;
    ring_.take(chunk);
    if constexpr (kCanNorm)
      if (params_.norm != nullptr) apply_norm(first, chunk);
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const uint4 low = chunk.x[half][2 * pair];
        uint4 high = make_uint4(0, 0, 0, 0);
        if constexpr (kTiles > 1) high = chunk.x[half][2 * pair + 1];
        const uint32_t even[4] = {low.x, high.x, low.y, high.y}, odd[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
          const uint4 weight = chunk.weights[half][group];
          ptx::multiply_add(sums[group][pair], even, weight.x, weight.y, T{});
          ptx::multiply_add(sums[group][pair], odd, weight.z, weight.w, T{});
        }
      }
  }

  // Squares do not depend on the features, so the first pass over x is enough for them.
  __device__ __forceinline__ void apply_norm(bool first, typename Ring::Chunk& chunk) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (first) squares_of_tile_[tile] += squares_of(chunk.x[half][tile]);
        chunk.x[half][tile] = times(chunk.x[half][tile], chunk.norm[half]);
      }
  }

  // Lane l holds tokens l / 4, l / 4 + 8, ... of features 2 (l % 4) and the next.
  __device__ __forceinline__ void keep(bool first, const Sums& sums) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int token = lane_ / 4 + tile * kFeatures;
      if (token >= kTokens) break;
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
        *reinterpret_cast<float2*>(partial_ + (warp_ * kGroups + group) * kGroupSums + token * kFeatures +
                                   lane_ % 4 * 2) =
            make_float2(sums[group][tile / 2][tile % 2 * 2], sums[group][tile / 2][tile % 2 * 2 + 1]);
      if (params_.norm == nullptr || !first) continue;
      float squares = squares_of_tile_[tile];
      for (int step = 1; step < 4; step *= 2) squares += __shfl_xor_sync(__activemask(), squares, step);
      if (lane_ % 4 == 0) squares_[warp_ * kTokens + token] = squares;
    }
  }

  __device__ float scale_of(int token) const {
    if (params_.norm == nullptr) return 1.0f;
    float squares = 0.0f;
    for (int warp = 0; warp < kFewRowsWarps; ++warp) squares += squares_[warp * kTokens + token];
    return 1.0f / sqrtf(squares / static_cast<float>(params_.in_features) + params_.norm_eps);
  }
  __device__ float sum_of(int group, int token, int row, float scale, int bias_idx) const {
    float sum = 0.0f;
    for (int warp = 0; warp < kFewRowsWarps; ++warp)
      sum += partial_[(warp * kGroups + group) * kGroupSums + token * kFeatures + row];
    const DeviceVector& bias = params_.bias;
    return sum * scale + (bias.data == nullptr ? 0.0f : load_element(bias.data, bias_idx, bias.element));
  }

  // Eight threads take a token's outputs of a unit, the next eight the next token's, so that the partial sums
  // which a warp reads lie side by side.
  static constexpr int kUnitsAtOnce = kFewRowsThreads / (kTokens * kFeatures);
  static constexpr int kMaxUnits = Out::kHeads ? kGroups / 2 : kGroups;
  static constexpr int kOutsOfThread = (kMaxUnits + kUnitsAtOnce - 1) / kUnitsAtOnce;

  // With many tokens, what is asked for would take registers from the products.
  static constexpr bool kAsksEarly = kTokens <= kMaxRowsAnywhere;
  using Early = typename Out::Early[kAsksEarly ? kOutsOfThread : 1];

  // Calls visit(i, token, unit, row) for the i-th output of this thread: row `row` of the pass's unit `unit`.
  template <class Visit>
  __device__ __forceinline__ void for_each_out(int first_unit, const Visit& visit) const {
    const int thread = static_cast<int>(threadIdx.x);
    const int row = thread % kFeatures, token = thread / kFeatures % kTokens;
    if (token >= params_.num_rows) return;
    const int num_units = min(share_.at_once, share_.end - first_unit);
    int unit = thread / (kFeatures * kTokens);
#pragma unroll(kAsksEarly ? kOutsOfThread : 1)
    for (int i = 0; i < kOutsOfThread; ++i) {
      if (unit < num_units) visit(i, token, unit, row);
      unit += kUnitsAtOnce;
    }
  }

  __device__ __forceinline__ void ask(int first_unit, Early& early) const {
    if constexpr (kAsksEarly)
      for_each_out(first_unit, [&](int i, int token, int unit, int row) {
        out_.ask(token, first_unit + unit, row, early[i]);
      });
  }
  __device__ __forceinline__ void write(int first_unit, Early& early) const {
    if constexpr (Out::kMeets) out_.wait_for_others();
    for_each_out(first_unit, [&](int i, int token, int unit, int row) {
      if constexpr (!kAsksEarly) out_.ask(token, first_unit + unit, row, early[0]);
      const float scale = scale_of(token);
      const int first_group = unit * groups_of_unit(params_);
      out_.write(token, first_unit + unit, row, early[kAsksEarly ? i : 0], [&](int group, int feature) {
        return sum_of(first_group + group, token, row, scale, feature);
      });
    });
    if constexpr (Out::kMeets) {
      out_.meet();
      for_each_out(first_unit, [&](int i, int token, int unit, int row) {
        out_.finish(token, first_unit + unit, row, early[i]);
      });
    }
  }

  const FewRowsParams& params_;
  const Out out_;
  const FeatureShare share_;
  Ring ring_;
  float* partial_;  // [warps, groups, tokens, features]
  float* squares_;  // [warps, tokens]
  const int warp_ = static_cast<int>(threadIdx.x) / 32, lane_ = static_cast<int>(threadIdx.x) % 32;
  float squares_of_tile_[kTiles] = {};
};

// CTAs of an SM for which there are registers.
constexpr int few_rows_ctas(int num_groups, int num_tokens) {
  return num_groups > 4 || num_groups * num_tokens > 6 * kFeatures ? 1 : 2;
}

template <class T, int kGroups, int kTokens, int kSharedBytes>
__global__ void __launch_bounds__(kFewRowsThreads, few_rows_ctas(kGroups, kTokens))
    few_rows_kernel(const __grid_constant__ FewRowsParams params) {
  extern __shared__ __align__(128) char shared[];
  FewRowsCta<T, kGroups, kTokens, kSharedBytes, SumsOut>(params, SumsOut(params), shared).run();
}

// How a layer's units are shared.
struct Shares {
  int num_ctas;
  int num_groups;  // of the largest share

  explicit Shares(const FewRowsParams& params) {
    num_ctas = std::min(num_units(params), num_sms());
    num_groups = (num_units(params) + num_ctas - 1) / num_ctas * groups_of_unit(params);
  }
  int num_passes(int groups_at_once) const { return (num_groups + groups_at_once - 1) / groups_at_once; }
};

// `kKernel` is one of the CTAs `Cta`, which take kGroups groups at once, and of parameters that hold
// `product`.
template <class Cta, int kGroups, auto kKernel, class Params>
void launch_ctas(const Params& params, const FewRowsParams& product, const Shares& shares, void* stream,
                 int cluster_size = 1) {
  constexpr int kRoundElements = kFewRowsWarps * kChunkElements;
  const int chunks_of_warp =
      (product.in_features + kRoundElements - 1) / kRoundElements * shares.num_passes(kGroups);
  const int shared_bytes = Cta::shared_bytes(chunks_of_warp);
  allow_shared_memory<kKernel>(Cta::kMaxSharedBytes, "linear: shared memory");
  launch_dependent<Params>(kKernel, static_cast<unsigned>(shares.num_ctas), kFewRowsThreads,
                           static_cast<size_t>(shared_bytes), stream, params, "linear", cluster_size);
}

template <class T, int kGroups, int kTokens, int kSharedBytes>
void launch_instance(const FewRowsParams& params, const Shares& shares, void* stream) {
  using Cta = FewRowsCta<T, kGroups, kTokens, kSharedBytes, SumsOut>;
  launch_ctas<Cta, kGroups, few_rows_kernel<T, kGroups, kTokens, kSharedBytes>>(params, params, shares,
                                                                                stream);
}

template <class T, int kTokens>
void launch_tokens(const FewRowsParams& params, void* stream) {
  const Shares shares(params);
  // As few passes over x as can be; then as few groups at once as can be, since the ring then holds more
  // chunks.
  const auto fewest = [&](int groups, int most) {
    return shares.num_passes(groups) == shares.num_passes(most);
  };
  constexpr int kLarge = kLargeSharedBytes, kSmall = kSmallSharedBytes;
  if constexpr (kTokens <= kMaxRowsAnywhere) {
    if (max_few_rows() == kMaxRowsAnywhere) {
      if (fewest(1, 2)) return launch_instance<T, 1, kTokens, kSmall>(params, shares, stream);
      return launch_instance<T, 2, kTokens, kSmall>(params, shares, stream);
    }
  }
  if (fewest(1, 6)) return launch_instance<T, 1, kTokens, kLarge>(params, shares, stream);
  if (fewest(2, 6)) return launch_instance<T, 2, kTokens, kLarge>(params, shares, stream);
  if (fewest(4, 6)) return launch_instance<T, 4, kTokens, kLarge>(params, shares, stream);
  launch_instance<T, 6, kTokens, kLarge>(params, shares, stream);
}

template <class T>
void launch_rows(const FewRowsParams& params, void* stream) {
  if (params.num_rows == 1)
    launch_tokens<T, 1>(params, stream);
  else if (params.num_rows <= 8)
    launch_tokens<T, 8>(params, stream);
  else if (params.num_rows <= kMaxRowsAnywhere)
    launch_tokens<T, kMaxRowsAnywhere>(params, stream);
  else
    launch_tokens<T, kMaxRowsWithRoom>(params, stream);
}

}  // namespace attend::kernels::cuda
