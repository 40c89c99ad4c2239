// Sampling with temperature, top-k, top-p and min-p without a sort: a cluster of CTAs per row of logits finds
// the cuts with a search over classes and digits (cluster_cut.cuh), and samples from the remaining tokens.
//
//   tile        a row of logits in 8 slices, distributed over a cluster of 8, 4, 2 or 1 CTAs, more if rows
//               are
//               few
//   warps       32, all alike
//   registers   64
//   shared      15.2 KB of sums and buckets; the CTA's logits and up to 96 KB of candidates, if they fit
//   bytes       the logits once from memory
//   bound       reading the logits for many rows; latency of the cluster barriers for few
#include <algorithm>
#include <cfloat>

#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/sampling/cuda/cluster_cut.cuh"
#include "attend/kernels/sampling/cuda/sampling_kernel.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kNone = INT_MAX;

struct Largest {
  float value;
  int index;  // the lowest one if equal; kNone: all are NaN

  __device__ void take(float other, int other_index) {
    if (other > value || (other == value && other_index < index)) {
      value = other;
      index = other_index;
    }
  }
};

// Returns the largest element of a part of a row, and copies its elements to `kept` unless that is null.
__device__ Largest find_largest(const float* logits, int size, float* kept) {
  __shared__ Largest warp_results[kSearchWarps];
  Largest largest{-INFINITY, kNone};
  // Reads four elements at a time if the part starts at a multiple of 16 bytes.
  const int num_fours = reinterpret_cast<uintptr_t>(logits) % sizeof(float4) == 0 ? size / 4 : 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < num_fours; i += kSearchThreads) {
    const float4 four = reinterpret_cast<const float4*>(logits)[i];
    if (kept != nullptr) reinterpret_cast<float4*>(kept)[i] = four;
    largest.take(four.x, 4 * i);
    largest.take(four.y, 4 * i + 1);
    largest.take(four.z, 4 * i + 2);
    largest.take(four.w, 4 * i + 3);
  }
  for (int i = 4 * num_fours + static_cast<int>(threadIdx.x); i < size; i += kSearchThreads) {
    if (kept != nullptr) kept[i] = logits[i];
    largest.take(logits[i], i);
  }
  for (int step = 16; step > 0; step /= 2)
    largest.take(__shfl_xor_sync(kAllLanes, largest.value, step),
                 __shfl_xor_sync(kAllLanes, largest.index, step));
  if (lane_idx() == 0) warp_results[warp_idx()] = largest;
  __syncthreads();
  for (int warp = 0; warp < kSearchWarps; ++warp)
    largest.take(warp_results[warp].value, warp_results[warp].index);
  return largest;
}

// Returns the largest element of all parts, with its index in the row. Both are packed into an integer that
// orders by value, and for equal values by descending index.
__device__ Largest find_largest(Cluster& cluster, const Largest& mine, int part_begin) {
  const uint32_t index = static_cast<uint32_t>(part_begin) + static_cast<uint32_t>(mine.index);
  const uint64_t code = mine.index == kNone ? 0 : uint64_t{float_to_order(mine.value)} << 32 | ~index;
  const uint64_t found = cluster.largest(code);
  if (found == 0) return {-INFINITY, kNone};
  return {order_to_float(static_cast<uint32_t>(found >> 32)),
          static_cast<int>(~static_cast<uint32_t>(found))};
}

// Returns e^x for x <= 0, bit for bit like cpu/simd.h with fused multiply-adds, so that both devices sample
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

// Same as in uniform_draw() of sampling.cc.
__device__ uint64_t scramble(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
__device__ double draw(uint64_t seed, uint64_t step) {
  constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15ull;
  return static_cast<double>(scramble(scramble(seed) + (step + 1) * kGoldenGamma) >> 11) * 0x1p-53;
}

// Probabilities of a part's tokens relative to the largest one, which is 1; 0 for tokens that the filters
// drop.
struct Probabilities {
  const float* logits;
  int part_begin;  // first token of the part in the row
  float max, inverse_temperature;
  float lowest = -INFINITY;  // logits above it are kept
  int last_tie = kNone;      // and those equal to it, up to this id
  float min_probability = 0.0f;

  __device__ bool includes(int i, float logit) const {
    return logit > lowest || (logit == lowest && part_begin + i <= last_tie);
  }
  __device__ double weight(float logit) const {
    const float p = exp_nonpositive(__fmul_rn(__fsub_rn(logit, max), inverse_temperature));
    return p < min_probability ? 0.0 : static_cast<double>(p);
  }
  __device__ double operator()(int i) const {
    const float logit = logits[i];
    return includes(i, logit) ? weight(logit) : 0.0;
  }
};

// Counts the logits that are not NaN.
struct FiniteCount {
  const float* logits;

  __device__ bool includes(int, float logit) const { return !isnan(logit); }
  __device__ double weight(float) const { return 1.0; }
  __device__ double operator()(int i) const { return includes(i, logits[i]) ? 1.0 : 0.0; }
};

__device__ int cluster_row(const Cluster& cluster) { return static_cast<int>(blockIdx.x) / cluster.size(); }
// Returns the first token of a CTA's part in its row.
__device__ int cta_part_begin(const SamplingParams& params, const Cluster& cluster) {
  return min(params.vocab_size, cluster.first_cta_slice() * params.slice_size);
}
// Computed at its use, to save a register.
__device__ float* cta_probabilities(const SamplingParams& params, const Cluster& cluster) {
  return params.probabilities + cluster_row(cluster) * params.probability_stride +
         cta_part_begin(params, cluster);
}

// Selection of a row's token by the cluster with its parts.
class RowSampler {
 public:
  __device__ RowSampler(Cluster& cluster, const Part& part, const Probabilities& probabilities,
                        const SamplingRule& rule, const CutScratch& scratch)
      : cluster_(cluster), part_(part), probabilities_(probabilities), rule_(rule), scratch_(scratch) {}

  __device__ int sample(int vocab_size) {
    double totals[kSlices];
    filter(vocab_size, totals);
    return first_exceeding(cluster_, part_, draw(rule_.seed, rule_.step) * sum_slices(totals), totals,
                           probabilities_);
  }

  // Writes the probabilities of the part's tokens.
  __device__ void write_probabilities(const SamplingParams& params) {
    double totals[kSlices];
    filter(params.vocab_size, totals);
    const double inverse_total = 1.0 / sum_slices(totals);
    float* const to = cta_probabilities(params, cluster_);
    for (int i = static_cast<int>(threadIdx.x); i < part_.size; i += kSearchThreads)
      to[i] = static_cast<float>(probabilities_(i) * inverse_total);
  }

 private:
  // Applies the filters and computes the sums of the remaining weights.
  __device__ void filter(int vocab_size, double (&totals)[kSlices]) {
    if (rule_.top_k > 0 && rule_.top_k < vocab_size)
      keep_largest(FiniteCount{probabilities_.logits},
                   [&](double) { return static_cast<double>(rule_.top_k); });
    if (rule_.top_p < 1.0f)
      keep_largest(Probabilities{probabilities_},
                   [&](double total) { return static_cast<double>(rule_.top_p) * total; });
    probabilities_.min_probability = rule_.min_p;
    slice_totals(cluster_, part_, probabilities_, totals);
  }

  // Keeps the fewest largest tokens with measures that add up to target(the sum of all measures).
  template <class Measure, class Target>
  __device__ void keep_largest(const Measure& measure, const Target& target) {
    const float* const logits = probabilities_.logits;
    ClassSums thread_sums(CutClasses::for_row(probabilities_.max, rule_.temperature));
    double totals[kSlices];
    slice_totals(
        cluster_, part_,
        [&](int i) {
          const double amount = measure(i);
          thread_sums.add(logits[i], amount);
          return amount;
        },
        totals);
    apply(find_cut(cluster_, part_, target(sum_slices(totals)), logits, probabilities_.max, thread_sums,
                   measure, scratch_));
  }

  __device__ void apply(const SearchCut& cut) {
    const float* const logits = probabilities_.logits;
    // Ties that a previous filter dropped remain dropped.
    if (cut.lowest != probabilities_.lowest) probabilities_.last_tie = kNone;
    probabilities_.lowest = cut.lowest;
    if (cut.keeps_all_ties) return;
    // Finds the last tie that is kept.
    const auto tie = [&](int i) { return logits[i] == cut.lowest ? 1.0 : 0.0; };
    double totals[kSlices];
    slice_totals(cluster_, part_, tie, totals);
    probabilities_.last_tie = first_exceeding(cluster_, part_, cut.num_ties - 1.0, totals, tie);
  }

  Cluster& cluster_;
  Part part_;
  Probabilities probabilities_;
  SamplingRule rule_;
  CutScratch scratch_;
};

// kWrites: writes the probabilities instead of a token.
template <bool kWrites>
__global__ void __launch_bounds__(kSearchThreads)
    sampling_kernel(const __grid_constant__ SamplingParams params) {
  extern __shared__ __align__(16) float room[];  // for the part, if it is kept, followed by the list of a cut
  __shared__ uint64_t words[2 * kSlices];
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  Cluster cluster(words);
  const int row = cluster_row(cluster);
  const int begin = cta_part_begin(params, cluster);
  const Part part{.size = min(cluster.slices_per_cta() * params.slice_size, params.vocab_size - begin),
                  .slice_size = params.slice_size};
  const float* logits = params.logits + row * params.row_stride + begin;
  const SamplingRule rule = params.rules != nullptr ? params.rules[row] : SamplingRule{.temperature = 0.0f};
  const bool keeps = params.keeps_part && rule.temperature > 0.0f;
  const Largest largest =
      find_largest(cluster, find_largest(logits, part.size, keeps ? room : nullptr), begin);
  if (keeps) logits = room;
  int id = largest.index == kNone ? kNoToken : largest.index;
  if (id >= 0 && rule.temperature > 0.0f && !isinf(largest.value)) {
    const Probabilities probabilities{.logits = logits,
                                      .part_begin = begin,
                                      .max = largest.value,
                                      .inverse_temperature = fminf(1.0f / rule.temperature, FLT_MAX)};
    const int kept_size = keeps ? cluster.slices_per_cta() * params.slice_size : 0;
    const CutScratch scratch{room + kept_size, params.room_size - kept_size};
    RowSampler sampler(cluster, part, probabilities, rule, scratch);
    if constexpr (kWrites)
      sampler.write_probabilities(params);
    else
      id = sampler.sample(params.vocab_size);
  } else if constexpr (kWrites) {
    float* const to = cta_probabilities(params, cluster);
    for (int i = static_cast<int>(threadIdx.x); i < part.size; i += kSearchThreads)
      to[i] = begin + i == id ? 1.0f : 0.0f;
  }
  if constexpr (!kWrites)
    if (threadIdx.x == 0 && cluster.rank() == 0) params.ids[row] = id;
  cluster.synchronize();  // other CTAs may still read this CTA's words
}

// Returns the CTAs per row that run concurrently. Clusters larger than pairs leave some SMs unused,
// since they do not divide the SMs of a GPC: on 132 SMs, 30 clusters of four run concurrently, and 15 of
// eight. Returns one before sm_90, and if the code was compiled for such a GPU at load time.
int ctas_per_row(int num_rows, const cudaFuncAttributes& attributes) {
  if (attributes.ptxVersion < 90) return 1;
  const int num_sms = current_device_attribute(cudaDevAttrMultiProcessorCount);
  int num_ctas = kSlices;
  while (num_ctas > 1 && num_rows * num_ctas > (num_ctas > 2 ? num_sms * 7 / 8 : num_sms)) num_ctas /= 2;
  return num_ctas;
}

template <bool kWrites>
void launch(SamplingParams params, void* stream) {
  if (params.num_rows == 0) return;
  cudaFuncAttributes attributes;
  attend::cuda::check(cudaFuncGetAttributes(&attributes, sampling_kernel<kWrites>), "sampling");
  const int num_ctas = ctas_per_row(params.num_rows, attributes);
  constexpr int kFour = 4;  // slices start where four elements are read with one access
  params.slice_size = (params.vocab_size + kFour * kSlices - 1) / (kFour * kSlices) * kFour;
  const int room = (current_device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) -
                    static_cast<int>(attributes.sharedSizeBytes)) /
                   int{sizeof(float)};
  const int part_size = kSlices / num_ctas * params.slice_size;
  constexpr int kMaxCandidates = 24 << 10;
  params.keeps_part = params.rules != nullptr && part_size <= room;
  const int kept_size = params.keeps_part ? part_size : 0;
  params.room_size = params.rules == nullptr ? 0 : std::min(room, kept_size + kMaxCandidates);
  allow_shared_memory<sampling_kernel<kWrites>>(room * int{sizeof(float)}, "sampling: shared memory");
  launch_dependent<SamplingParams>(
      sampling_kernel<kWrites>, static_cast<unsigned>(num_ctas * params.num_rows), kSearchThreads,
      sizeof(float) * static_cast<size_t>(params.room_size), stream, params, "sampling", num_ctas);
}

}  // namespace

void launch_sampling(SamplingParams params, void* stream) {
  if (params.probabilities != nullptr) return launch<true>(params, stream);
  launch<false>(params, stream);
}

}  // namespace attend::kernels::cuda
