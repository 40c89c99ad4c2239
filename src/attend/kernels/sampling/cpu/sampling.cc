#include "attend/kernels/sampling/cpu/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attend/base/parallel.h"
#include "attend/kernels/sampling/cpu/sampling_cut.h"
#include "attend/kernels/sampling/cpu/sampling_kernels.h"

namespace attend::kernels::cpu {
namespace {

constexpr int64_t kChunk = 512;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Logits {
  const float* data;
  int64_t size;
};

Logits get_row(const TensorView& logits, int64_t row) {
  return {.data = logits.as<const float>() + row * logits.strides[0], .size = logits.shape[1]};
}

// Calls fn(first, count) for the chunks of a row.
template <class Fn>
void for_each_chunk(int64_t size, const Fn& fn) {
  for (int64_t first = 0; first < size; first += kChunk) fn(first, std::min(kChunk, size - first));
}

struct Largest {
  float value;
  int64_t index;  // the lowest one if equal; kNoToken: all are NaN
};

Largest find_largest(const SamplingKernels& kernels, const Logits& logits) {
  float largest = -kInfinity;
  int64_t chunk = 0;  // the first chunk that contains it
  for_each_chunk(logits.size, [&](int64_t first, int64_t count) {
    const float value = kernels.max(logits.data + first, count);
    if (value > largest) {
      largest = value;
      chunk = first;
    }
  });
  const float* const end = logits.data + logits.size;
  const float* const found = std::find(logits.data + chunk, end, largest);
  return {.value = largest, .index = found == end ? kNoToken : found - logits.data};
}

// Weights of a row's tokens: probabilities times a common factor, with a maximum of 1, and 0 for tokens that
// the filters drop. They are recomputed chunk by chunk in each pass.
class Weights {
 public:
  Weights(const SamplingKernels& kernels, const Logits& logits, float max, float temperature)
      : kernels_(kernels),
        logits_(logits),
        max_(max),
        // Finite even for a denormal temperature, so that 0 times it is 0.
        inverse_temperature_(std::min(1.0f / temperature, std::numeric_limits<float>::max())) {}

  void apply_top_k(int64_t count) {
    if (count >= logits_.size) return;
    cut_ = find_cut(static_cast<double>(count), [&](const auto& fn) {
      for (int64_t i = 0; i < logits_.size; ++i)
        if (!std::isnan(logits_.data[i])) fn(logits_.data[i], 1.0f);
    });
  }

  void apply_top_p(double probability) {
    if (probability == 1.0) return;
    cut_ = find_cut(probability * sum(), [&](const auto& fn) {
      for_each([&](int64_t first, int64_t count, const float* weights) {
        for (int64_t i = 0; i < count; ++i) fn(logits_.data[first + i], weights[i]);
      });
    });
  }

  void apply_min_p(float weight) { min_weight_ = weight; }

  double sum() const {
    double total = 0;
    for_each([&](int64_t, int64_t count, const float* weights) {
      for (int64_t i = 0; i < count; ++i) total += static_cast<double>(weights[i]);
    });
    return total;
  }

  // to[i] = weight / `total`.
  void write(double total, float* to) const {
    for_each([&](int64_t first, int64_t count, const float* weights) {
      for (int64_t i = 0; i < count; ++i)
        to[first + i] = static_cast<float>(static_cast<double>(weights[i]) / total);
    });
  }

  // Returns the first token at which the running sum exceeds `target`, which is less than sum().
  int64_t find(double target) const {
    double total = 0;
    int64_t found = -1;
    for_each([&](int64_t first, int64_t count, const float* weights) {
      for (int64_t i = 0; i < count && found < 0; ++i) {
        total += static_cast<double>(weights[i]);
        if (total > target) found = first + i;
      }
    });
    return found;
  }

 private:
  // Calls fn(first, count, weights) for each chunk.
  template <class Fn>
  void for_each(const Fn& fn) const {
    int64_t ties_left = cut_.num_ties;
    for_each_chunk(logits_.size, [&](int64_t first, int64_t count) {
      float weights[kChunk];
      const float* const logits = logits_.data + first;
      kernels_.weigh(logits, max_, inverse_temperature_, weights, count);
      for (int64_t i = 0; i < count; ++i) {
        const bool kept = logits[i] > cut_.lowest || (logits[i] == cut_.lowest && ties_left-- > 0);
        if (!kept || weights[i] < min_weight_) weights[i] = 0.0f;
      }
      fn(first, count, weights);
    });
  }

  const SamplingKernels& kernels_;
  Logits logits_;
  float max_, inverse_temperature_;
  SamplingCut cut_;
  float min_weight_ = 0.0f;
};

bool is_greedy(const Largest& largest, const SamplingRule& rule) {
  return rule.temperature == 0.0f || std::isinf(largest.value);
}

Weights filtered_weights(const SamplingKernels& kernels, const Logits& logits, const Largest& largest,
                         const SamplingRule& rule) {
  Weights weights(kernels, logits, largest.value, rule.temperature);
  if (rule.top_k > 0) weights.apply_top_k(rule.top_k);
  weights.apply_top_p(rule.top_p);
  weights.apply_min_p(rule.min_p);
  return weights;
}

int64_t sample_row(const SamplingKernels& kernels, const Logits& logits, const SamplingRule& rule) {
  const Largest largest = find_largest(kernels, logits);
  if (is_greedy(largest, rule)) return largest.index;
  const Weights weights = filtered_weights(kernels, logits, largest, rule);
  return weights.find(uniform_draw(rule.seed, rule.step) * weights.sum());
}

void write_probabilities(const SamplingKernels& kernels, const Logits& logits, const SamplingRule& rule,
                         float* to) {
  const Largest largest = find_largest(kernels, logits);
  if (is_greedy(largest, rule)) {
    std::fill_n(to, logits.size, 0.0f);
    if (largest.index != kNoToken) to[largest.index] = 1.0f;
    return;
  }
  const Weights weights = filtered_weights(kernels, logits, largest, rule);
  weights.write(weights.sum(), to);
}

}  // namespace

SamplingKernels sampling_kernels(Isa isa) {
  require_isa(isa);
  if constexpr (kX86Kernels) {
    if (isa >= Isa::kAvx512) return sampling_kernels_avx512();
    if (isa == Isa::kAvx2) return sampling_kernels_avx2();
  }
  return sampling_kernels_portable();
}

void argmax(const TensorView& logits, View<int32_t> ids, Isa isa) {
  const SamplingKernels kernels = sampling_kernels(isa);
  parallel_for_rows(logits.shape[0], logits.shape[1], [&](int64_t row) {
    ids[static_cast<size_t>(row)] = static_cast<int32_t>(find_largest(kernels, get_row(logits, row)).index);
  });
}

void sample(const TensorView& logits, View<const SamplingRule> rules, View<int32_t> ids, Isa isa) {
  const SamplingKernels kernels = sampling_kernels(isa);
  parallel_for_rows(logits.shape[0], logits.shape[1], [&](int64_t row) {
    const auto i = static_cast<size_t>(row);
    ids[i] = static_cast<int32_t>(sample_row(kernels, get_row(logits, row), rules[i]));
  });
}

void probabilities(const TensorView& logits, View<const SamplingRule> rules, const TensorView& out, Isa isa) {
  const SamplingKernels kernels = sampling_kernels(isa);
  parallel_for_rows(logits.shape[0], logits.shape[1], [&](int64_t row) {
    write_probabilities(kernels, get_row(logits, row), rules[static_cast<size_t>(row)],
                        out.as<float>() + row * out.strides[0]);
  });
}

}  // namespace attend::kernels::cpu
