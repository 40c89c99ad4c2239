#include <algorithm>
#include <type_traits>

#include "attend/kernels/cuda/element.cuh"
#include "attend/kernels/cuda/few_rows_kernel.h"
#include "attend/kernels/cuda/few_rows_ring.cuh"
#include "attend/kernels/cuda/launch.cuh"
#include "attend/kernels/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/cuda/ptx/mma.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 32 * kFewRowsWarps;
constexpr int kLineBytes = 128;

// Rows of x times a norm's weights, in place; adds their squares to `squares`.
__device__ void apply_norm(uint4& x, const uint4& norm, float& squares) {
  auto* const pairs = reinterpret_cast<__nv_bfloat162*>(&x);
  const auto* const weights = reinterpret_cast<const __nv_bfloat162*>(&norm);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __bfloat1622float2(pairs[i]);
    squares += pair.x * pair.x + pair.y * pair.y;
    pairs[i] = __hmul2(pairs[i], weights[i]);
  }
}

// A CTA takes a share of the output features, a few groups of eight at a time; its warps take turns at chunks
// of the inputs and add their sums in the end, always in the same order, so a row's bits depend on the row
// alone.
template <class T, int kGroups, int kTokens>
class FewRowsCta {
  using Ring = FewRowsRing<kGroups, kTokens>;
  static constexpr int kGroupSums = kTokens * kFeatures;
  static constexpr bool kCanNorm = std::is_same_v<T, __nv_bfloat16>;

 public:
  static constexpr int kSharedBytes =
      Ring::kSharedBytes + kFewRowsWarps * (kGroups * kGroupSums + kTokens) * static_cast<int>(sizeof(float));

  __device__ FewRowsCta(const FewRowsParams& params, char* shared)
      : params_(params),
        share_(params, kGroups),
        ring_(params, share_, shared),
        partial_(reinterpret_cast<float*>(shared + Ring::kSharedBytes)),
        squares_(partial_ + kFewRowsWarps * kGroups * kGroupSums) {}

  __device__ __forceinline__ void run() {
    // Weights do not depend on the kernel before, so the first of them come while it ends. The next kernel
    // may do the same only now: were it let in earlier, kernels would pile up on the SMs.
    ring_.start([] {
      ptx::wait_for_previous_kernel();
      ptx::allow_next_kernel();
    });
    const int num_chunks = (params_.in_features + kChunkElements - 1) / kChunkElements;
    for (int unit = share_.begin; unit < share_.end; unit += share_.units_at_once) {
      float sums[kGroups][4] = {};
      for (int chunk = warp_; chunk < num_chunks; chunk += kFewRowsWarps) {
        ring_.wait();
        multiply(sums);
        ring_.refill();
      }
      if (unit + share_.units_at_once >= share_.end) ask_for_next();
      keep(sums);
      __syncthreads();
      write(unit, min(share_.units_at_once, share_.end - unit));
      __syncthreads();
    }
  }

 private:
  // Inputs are numbered as the pieces come: which of them the tensor cores take together does not matter as
  // long as weights and x agree.
  __device__ __forceinline__ void multiply(float (&sums)[kGroups][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int piece = half * 4 + lane_ % 4, row = lane_ / 4;
      uint4 low = ring_.x(row, piece), high = make_uint4(0, 0, 0, 0);
      if constexpr (kTokens > kFeatures) high = ring_.x(row + kFeatures, piece);
      if constexpr (kCanNorm) {
        if (params_.norm != nullptr) {
          const uint4 norm = ring_.norm(piece);
          apply_norm(low, norm, token_squares_[0]);
          if constexpr (kTokens > kFeatures) apply_norm(high, norm, token_squares_[1]);
        }
      }
      const uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const uint4 weight = ring_.weight(group, row, piece);
        ptx::multiply_add(sums[group], first, weight.x, weight.y, T{});
        ptx::multiply_add(sums[group], second, weight.z, weight.w, T{});
      }
    }
  }

  // Lane l holds tokens l / 4 and l / 4 + 8 of features 2 (l % 4) and the next.
  __device__ __forceinline__ void keep(const float (&sums)[kGroups][4]) {
#pragma unroll
    for (int half = 0; half < kTokens / kFeatures; ++half) {
      const int token = lane_ / 4 + half * kFeatures;
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
        *reinterpret_cast<float2*>(partial_ + (warp_ * kGroups + group) * kGroupSums + token * kFeatures +
                                   lane_ % 4 * 2) =
            make_float2(sums[group][2 * half], sums[group][2 * half + 1]);
      if (params_.norm == nullptr) continue;
      float& squares = token_squares_[half];
      for (int step = 1; step < 4; step *= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
      if (lane_ % 4 == 0) squares_[warp_ * kTokens + token] = squares;
      squares = 0.0f;
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

  __device__ __forceinline__ void write(int first_unit, int num_units) const {
    const int num_features = num_units * kFeatures;
    for (int i = static_cast<int>(threadIdx.x); i < params_.num_rows * num_features; i += kThreads) {
      const int token = i / num_features, unit = i % num_features / kFeatures, row = i % kFeatures;
      const int feature = (first_unit + unit) * kFeatures + row;
      if (feature >= params_.out_features) continue;
      const float scale = scale_of(token);
      const int64_t to = token * params_.out_stride + feature;
      float value;
      if (params_.gated) {
        const float gate = sum_of(2 * unit, token, row, scale, feature);
        const float up = sum_of(2 * unit + 1, token, row, scale, params_.out_features + feature);
        value = gate / (1.0f + expf(-gate)) * up;
      } else {
        value = sum_of(unit, token, row, scale, feature);
        if (params_.accumulate) value += load_element(params_.out, to, params_.out_element);
      }
      store_element(params_.out, to, params_.out_element, value);
    }
  }

  __device__ void ask_for_next() const {
    const int64_t step = int64_t{gridDim.x} * kThreads * kLineBytes;
    for (int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kLineBytes;
         at < params_.read_next_bytes; at += step)
      ptx::prefetch_to_l2(static_cast<const char*>(params_.read_next) + at);
  }

  const FewRowsParams& params_;
  const FeatureShare share_;
  Ring ring_;
  float* partial_;  // [warps, groups, tokens, features]
  float* squares_;  // [warps, tokens]
  const int warp_ = static_cast<int>(threadIdx.x) / 32, lane_ = static_cast<int>(threadIdx.x) % 32;
  float token_squares_[kTokens / kFeatures] = {};
};

template <class T, int kGroups, int kTokens>
__global__ void __launch_bounds__(kThreads, 2) few_rows_kernel(const __grid_constant__ FewRowsParams params) {
  extern __shared__ __align__(16) char shared[];
  FewRowsCta<T, kGroups, kTokens>(params, shared).run();
}

int num_sms_of_current_device() {
  int device = 0, num_sms = 0;
  attend::cuda::check(cudaGetDevice(&device), "device");
  attend::cuda::check(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, device),
                      "SMs of a device");
  return num_sms;
}

template <class T, int kGroups, int kTokens>
void launch_instance(const FewRowsParams& params, int num_ctas, void* stream) {
  const auto kernel = few_rows_kernel<T, kGroups, kTokens>;
  constexpr int kSharedBytes = FewRowsCta<T, kGroups, kTokens>::kSharedBytes;
  attend::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
                      "linear: shared memory");
  launch_dependent<FewRowsParams>(kernel, static_cast<unsigned>(num_ctas), kThreads, kSharedBytes, stream,
                                  params, "linear");
}

template <class T, int kTokens>
void launch_groups(const FewRowsParams& params, void* stream) {
  const int num_units = (params.out_features + kFeatures - 1) / kFeatures;
  const int num_ctas = std::min(num_units, num_sms_of_current_device());
  const int num_groups = (num_units + num_ctas - 1) / num_ctas * (params.gated ? 2 : 1);
  const auto num_passes = [&](int at_once) { return (num_groups + at_once - 1) / at_once; };
  // As few passes over x as can be; then as few groups at once as can be, since the ring then holds more
  // chunks.
  if (num_passes(1) == num_passes(6)) return launch_instance<T, 1, kTokens>(params, num_ctas, stream);
  if (num_passes(2) == num_passes(6)) return launch_instance<T, 2, kTokens>(params, num_ctas, stream);
  if (num_passes(4) == num_passes(6)) return launch_instance<T, 4, kTokens>(params, num_ctas, stream);
  launch_instance<T, 6, kTokens>(params, num_ctas, stream);
}

template <class T>
void launch(const FewRowsParams& params, void* stream) {
  if (params.num_rows <= kFeatures)
    launch_groups<T, kFeatures>(params, stream);
  else
    launch_groups<T, kMaxFewRows>(params, stream);
}

}  // namespace

void launch_few_rows(const FewRowsParams& params, void* stream) {
  if (params.element == Element::kBF16)
    launch<__nv_bfloat16>(params, stream);
  else
    launch<__half>(params, stream);
}

}  // namespace attend::kernels::cuda
