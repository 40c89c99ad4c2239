#include <cfloat>
#include <climits>

#include "attend/kernels/cuda/cta_search.cuh"
#include "attend/kernels/cuda/launch.cuh"
#include "attend/kernels/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/cuda/sampling_kernel.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kNone = INT_MAX;

struct Largest {
  float value;
  int index;  // the lowest of equals; kNone: all are NaN

  __device__ void take(float other, int other_index) {
    if (other > value || (other == value && other_index < index)) {
      value = other;
      index = other_index;
    }
  }
};

__device__ Largest find_largest(const float* logits, int size) {
  __shared__ Largest of_warps[kSearchWarps];
  Largest largest{-INFINITY, kNone};
  // By four, where the row begins at a multiple of 16 bytes.
  const int num_fours = reinterpret_cast<uintptr_t>(logits) % sizeof(float4) == 0 ? size / 4 : 0;
#pragma unroll 8
  for (int i = static_cast<int>(threadIdx.x); i < num_fours; i += kSearchThreads) {
    const float4 four = reinterpret_cast<const float4*>(logits)[i];
    largest.take(four.x, 4 * i);
    largest.take(four.y, 4 * i + 1);
    largest.take(four.z, 4 * i + 2);
    largest.take(four.w, 4 * i + 3);
  }
  for (int i = 4 * num_fours + static_cast<int>(threadIdx.x); i < size; i += kSearchThreads)
    largest.take(logits[i], i);
  for (int step = 16; step > 0; step /= 2)
    largest.take(__shfl_xor_sync(kAllLanes, largest.value, step),
                 __shfl_xor_sync(kAllLanes, largest.index, step));
  if (lane_idx() == 0) of_warps[warp_idx()] = largest;
  __syncthreads();
  for (int warp = 0; warp < kSearchWarps; ++warp) largest.take(of_warps[warp].value, of_warps[warp].index);
  return largest;
}

// e^x for x <= 0, to the bit as cpu/simd.h computes it with fused multiply-adds, so that both devices draw
// the same tokens.
__device__ float exp_nonpositive(float x) {
  constexpr float kSmallest = -87.3f;
  if (x < kSmallest) return 0.0f;
  const float n = rintf(__fmul_rn(x, 1.44269504f));
  const float r = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, x));
  float q = 1.392618359e-3f;
  q = fmaf(q, r, 8.363179053e-3f);
  q = fmaf(q, r, 4.166655462e-2f);
  q = fmaf(q, r, 1.666657699e-1f);
  q = fmaf(q, r, 0.5f);
  const float e = __fadd_rn(1.0f, fmaf(__fmul_rn(r, r), q, r));
  return __fmul_rn(e, __int_as_float((static_cast<int>(n) + 127) << 23));
}

// As uniform_draw of sampling.h.
__device__ uint64_t scramble(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
__device__ double draw(uint64_t seed, uint64_t step) {
  constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15ull;
  return static_cast<double>(scramble(scramble(seed) + (step + 1) * kGoldenGamma) >> 11) * 0x1p-53;
}

// The weights (probabilities times a common factor, the largest 1) of a row's tokens, 0 for those that the
// filters drop.
struct Weights {
  const float* logits;
  float max, inverse_temperature;
  float lowest = -INFINITY;  // logits above it are kept
  int last_tie = kNone;      // and those that equal it, up to this id
  float min_weight = 0.0f;

  __device__ double operator()(int i) const {
    const float logit = logits[i];
    const bool kept = logit > lowest || (logit == lowest && i <= last_tie);
    if (!kept) return 0.0;
    const float weight = exp_nonpositive(__fmul_rn(__fsub_rn(logit, max), inverse_temperature));
    return weight < min_weight ? 0.0 : static_cast<double>(weight);
  }
};

__device__ void apply(const SearchCut& cut, int size, Weights& weights) {
  const float* const logits = weights.logits;
  weights.lowest = cut.lowest;
  // The tie at which as many are counted as are kept; if there are no more than that, the last one.
  weights.last_tie =
      first_exceeding(size, cut.num_ties - 1.0, [&](int i) { return logits[i] == cut.lowest ? 1.0 : 0.0; });
}

__device__ int sample_row(const float* logits, int size, const Largest& largest, const SamplingRule& rule) {
  Weights weights{
      .logits = logits, .max = largest.value, .inverse_temperature = fminf(1.0f / rule.temperature, FLT_MAX)};
  const auto logit_of = [&](int i) { return logits[i]; };
  if (rule.top_k > 0 && rule.top_k < size) {
    const auto count = [&](int i) { return isnan(logits[i]) ? 0.0 : 1.0; };
    apply(find_cut(size, rule.top_k, logit_of, count), size, weights);
  }
  if (rule.top_p < 1.0f) {
    const double target = static_cast<double>(rule.top_p) * cta_total(size, weights);
    apply(find_cut(size, target, logit_of, weights), size, weights);
  }
  weights.min_weight = rule.min_p;
  return first_exceeding(size, draw(rule.seed, rule.step) * cta_total(size, weights), weights);
}

__global__ void __launch_bounds__(kSearchThreads)
    sampling_kernel(const __grid_constant__ SamplingParams params) {
  ptx::allow_next_kernel();
  ptx::wait_for_previous_kernel();
  const float* const logits = params.logits + blockIdx.x * params.row_stride;
  const Largest largest = find_largest(logits, params.vocab_size);
  int id = largest.index == kNone ? kNoToken : largest.index;
  if (id >= 0 && params.rules != nullptr && !isinf(largest.value)) {
    const SamplingRule rule = params.rules[blockIdx.x];
    if (rule.temperature > 0.0f) id = sample_row(logits, params.vocab_size, largest, rule);
  }
  if (threadIdx.x == 0) params.ids[blockIdx.x] = id;
}

}  // namespace

void launch_sampling(const SamplingParams& params, void* stream) {
  if (params.num_rows == 0) return;
  launch_dependent<SamplingParams>(sampling_kernel, static_cast<unsigned>(params.num_rows), kSearchThreads, 0,
                                   stream, params, "sampling");
}

}  // namespace attend::kernels::cuda
