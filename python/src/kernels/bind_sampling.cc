// Bindings of sampling with rules, documented in attend/sgl_kernel/sampling.py.
#include <cstddef>
#include <type_traits>

#include "attend/kernels/sampling/sampling.h"
#include "module.h"
#include "tensors/arguments.h"

namespace attend::python {
namespace {

using kernels::SamplingRule;

// Row of rules: temperature, top_k, top_p, min_p in 32 bits each, seed and step in 64.
constexpr int64_t kRuleWords = 8;
static_assert(sizeof(SamplingRule) == kRuleWords * sizeof(int32_t) &&
              offsetof(SamplingRule, temperature) == 0 && offsetof(SamplingRule, top_k) == 4 &&
              offsetof(SamplingRule, top_p) == 8 && offsetof(SamplingRule, min_p) == 12 &&
              offsetof(SamplingRule, seed) == 16 && offsetof(SamplingRule, step) == 24);

View<const SamplingRule> parse_rules(const TensorArgument& rules, const TensorView& logits) {
  require_given("rules", rules);
  require_same_device("rules", *rules, logits.device);
  require(rules->rank == 2 && rules->shape[0] == logits.shape[0] && rules->shape[1] == kRuleWords &&
              rules->is_contiguous() && reinterpret_cast<uintptr_t>(rules->data) % alignof(SamplingRule) == 0,
          "rules ", *rules, ": expected contiguous int32 [", logits.shape[0], ", ", kRuleWords, "]");
  return {static_cast<const SamplingRule*>(rules->data), static_cast<size_t>(rules->shape[0])};
}

void require_logits(const TensorArgument& logits) {
  require_given("logits", logits);
  require(logits->rank == 2, "logits ", *logits, ": expected [num_rows, vocab_size]");
}

void sample_tokens(nb::handle logits_object, nb::handle rules_object, nb::handle ids_object) {
  const TensorArgument logits("logits", logits_object, Accepts::kFloat32),
      rules("rules", rules_object, Accepts::kInt32), ids("ids", ids_object, Accepts::kInt32, Access::kWrite);
  require_logits(logits);
  require_given("ids", ids);
  const View<const SamplingRule> each = parse_rules(rules, *logits);
  const View<const int32_t> to = int32_vector("ids", ids, logits->device);
  if (logits->shape[0] == 0) return;
  run_on_stream(logits_object, logits->device, [&](Stream& stream) {
    kernels::sample(*logits, each, {const_cast<int32_t*>(to.data()), to.size()}, stream);
  });
}

void probabilities(nb::handle logits_object, nb::handle rules_object, nb::handle out_object) {
  const TensorArgument logits("logits", logits_object, Accepts::kFloat32),
      rules("rules", rules_object, Accepts::kInt32),
      out("out", out_object, Accepts::kFloat32, Access::kWrite);
  require_logits(logits);
  require_given("out", out);
  const View<const SamplingRule> each = parse_rules(rules, *logits);
  if (logits->shape[0] == 0) return;
  run_on_stream(logits_object, logits->device,
                [&](Stream& stream) { kernels::probabilities(*logits, each, *out, stream); });
}

}  // namespace

void bind_sampling(Module& module) {
  const auto object = [](const char* name) { return nb::arg(name).none(); };
  module.def("sample_tokens", &sample_tokens, object("logits"), object("rules"), object("ids"));
  module.def("probabilities", &probabilities, object("logits"), object("rules"), object("out"));
}

}  // namespace attend::python
