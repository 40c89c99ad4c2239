#include "attend/kernels/sampling/sampling.h"

#include <cmath>
#include <string_view>

#include "attend/base/error.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/sampling/cpu/sampling.h"
#include "attend/kernels/sampling/cuda/sampling.h"

namespace attend::kernels {
namespace {

// Output function of SplitMix64.
uint64_t scramble(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void check_rows(std::string_view name, const TensorView& rows, const Stream& stream) {
  require_rank(name, rows, 2);
  require_dtype(name, rows, DType::kF32);
  require_unit_stride(name, rows);
  require_on(stream, name, rows);
}

void check_logits(const TensorView& logits, View<int32_t> ids, const Stream& stream) {
  check_rows("logits", logits, stream);
  require(logits.shape[1] >= 1, "logits ", logits, ": empty vocabulary");
  require(static_cast<size_t>(logits.shape[0]) == ids.size(), "ids: ", ids.size(), " for ", logits.shape[0],
          " rows of logits");
}

void check_rules(const TensorView& logits, View<const SamplingRule> rules, const Stream& stream) {
  require(std::ssize(rules) == logits.shape[0], "rules: ", rules.size(), " for ", logits.shape[0],
          " rows of logits");
  if (stream.device.type == DeviceType::kCuda && logits.shape[1] > kMaxSampledVocabOnGpu)
    fail(ErrorCode::kUnsupported, "sample: logits ", logits, ": a vocabulary of ", logits.shape[1], " on ",
         stream.device, ": expected at most ", kMaxSampledVocabOnGpu);
  if (stream.device.type == DeviceType::kCuda) return;
  for (const SamplingRule& rule : rules) check(rule);
}

}  // namespace

void check(const SamplingRule& rule) {
  require(std::isfinite(rule.temperature) && rule.temperature >= 0.0f, "temperature ", rule.temperature,
          ": expected at least 0 (0: greedy)");
  require(rule.top_k >= 0, "top_k ", rule.top_k, ": expected at least 1, or 0 for all");
  require(rule.top_p > 0.0f && rule.top_p <= 1.0f, "top_p ", rule.top_p, ": expected above 0 and at most 1");
  require(rule.min_p >= 0.0f && rule.min_p <= 1.0f, "min_p ", rule.min_p, ": expected from 0 to 1");
}

double uniform_draw(uint64_t seed, uint64_t step) {
  constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15u;
  return static_cast<double>(scramble(scramble(seed) + (step + 1) * kGoldenGamma) >> 11) * 0x1p-53;
}

void argmax(const TensorView& logits, View<int32_t> ids, Stream& stream) {
  check_logits(logits, ids, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::argmax(logits, ids, stream);
  cpu::argmax(logits, ids, cpu::detect_isa());
}

void map_ids(View<const int32_t> table, View<int32_t> ids, Stream& stream) {
  if (const OnGpu gpu(stream); gpu) return cuda::map_ids(table, ids, stream);
  for (int32_t& id : ids)
    if (id != kNoToken) id = table[static_cast<size_t>(id)];
}

void sample(const TensorView& logits, View<const SamplingRule> rules, View<int32_t> ids, Stream& stream) {
  check_logits(logits, ids, stream);
  check_rules(logits, rules, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::sample(logits, rules, ids, stream);
  cpu::sample(logits, rules, ids, cpu::detect_isa());
}

void probabilities(const TensorView& logits, View<const SamplingRule> rules, const TensorView& probabilities,
                   Stream& stream) {
  check_rows("logits", logits, stream);
  check_rows("probabilities", probabilities, stream);
  require(logits.shape[1] >= 1, "logits ", logits, ": empty vocabulary");
  require_shape("probabilities", probabilities, {logits.shape[0], logits.shape[1]});
  check_rules(logits, rules, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::probabilities(logits, rules, probabilities, stream);
  cpu::probabilities(logits, rules, probabilities, cpu::detect_isa());
}

}  // namespace attend::kernels
