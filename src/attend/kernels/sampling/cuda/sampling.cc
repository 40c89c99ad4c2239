#include "attend/kernels/sampling/cuda/sampling.h"

#include "attend/kernels/sampling/cuda/map_ids_kernel.h"
#include "attend/kernels/sampling/cuda/sampling_kernel.h"

namespace attend::kernels::cuda {
namespace {

SamplingParams make_params(const TensorView& logits, const SamplingRule* rules, View<int32_t> ids) {
  return {.logits = logits.as<float>(),
          .row_stride = logits.strides[0],
          .rules = rules,
          .ids = ids.data(),
          .num_rows = static_cast<int32_t>(logits.shape[0]),
          .vocab_size = static_cast<int32_t>(logits.shape[1])};
}

}  // namespace

void argmax(const TensorView& logits, View<int32_t> ids, Stream& stream) {
  launch_sampling(make_params(logits, nullptr, ids), stream.handle);
}

void map_ids(View<const int32_t> table, View<int32_t> ids, Stream& stream) {
  launch_map_ids({.table = table.data(), .ids = ids.data(), .num_ids = static_cast<int32_t>(ids.size())},
                 stream.handle);
}

void sample(const TensorView& logits, View<const SamplingRule> rules, View<int32_t> ids, Stream& stream) {
  launch_sampling(make_params(logits, rules.data(), ids), stream.handle);
}

void probabilities(const TensorView& logits, View<const SamplingRule> rules, const TensorView& out,
                   Stream& stream) {
  SamplingParams params = make_params(logits, rules.data(), {});
  params.probabilities = out.as<float>();
  params.probability_stride = out.strides[0];
  launch_sampling(params, stream.handle);
}

}  // namespace attend::kernels::cuda
