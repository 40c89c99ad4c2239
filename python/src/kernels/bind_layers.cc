// Bindings of the layers between attention, documented in attend/sgl_kernel/elementwise.py.
#include <nanobind/stl/string_view.h>

#include <initializer_list>
#include <utility>

#include "attend/kernels/moe/experts.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/norm_rope/rope.h"
#include "module.h"
#include "tensors/arguments.h"

namespace attend::python {
namespace {

struct Named {
  std::string_view name;
  const TensorArgument& tensor;
};

// Requires that all tensors are given, on the device of the first, with contiguous rows.
void require_rows(std::initializer_list<Named> tensors) {
  const Device device = tensors.begin()->tensor->device;
  for (const auto& [name, tensor] : tensors) {
    require_given(name, tensor);
    require_same_device(name, *tensor, device);
    const auto last = static_cast<size_t>(tensor->rank) - 1;
    require(tensor->rank >= 1 && (tensor->strides[last] == 1 || tensor->shape[last] <= 1), name, " ", *tensor,
            ": expected a stride of 1 in the last dimension");
  }
}

void require_same_shape(const Named& named, const Named& like) {
  require(named.tensor->rank == like.tensor->rank && named.tensor->shape == like.tensor->shape, named.name,
          " ", *named.tensor, ": expected the shape of ", like.name, " ", *like.tensor);
}

void require_norm_weight(const TensorArgument& weight, const TensorArgument& input) {
  const int64_t dim = input->shape[static_cast<size_t>(input->rank) - 1];
  require(weight->rank == 1 && weight->shape[0] == dim, "weight ", *weight, ": expected [", dim,
          "], the last dimension of input");
}

void rms_norm(nb::handle input_object, nb::handle weight_object, float eps, nb::handle out_object,
              float weight_offset) {
  const TensorArgument input("input", input_object, Accepts::kActivations),
      weight("weight", weight_object, Accepts::kActivations),
      out("out", out_object, Accepts::kActivations, Access::kWrite);
  require_rows({{"input", input}, {"weight", weight}, {"out", out}});
  require(input->rank == 2 || input->rank == 3, "input ", *input, ": expected 2 or 3 dimensions");
  require_norm_weight(weight, input);
  require_same_shape({"out", out}, {"input", input});
  if (input->num_elements() == 0) return;
  run_on_stream(input_object, input->device, [&](Stream& stream) {
    kernels::rms_norm(*input, *weight, eps, *out, stream, weight_offset);
  });
}

void add_rms_norm(nb::handle input_object, nb::handle residual_object, nb::handle weight_object, float eps,
                  float weight_offset) {
  const TensorArgument input("input", input_object, Accepts::kActivations, Access::kWrite),
      residual("residual", residual_object, Accepts::kActivations, Access::kWrite),
      weight("weight", weight_object, Accepts::kActivations);
  require_rows({{"input", input}, {"residual", residual}, {"weight", weight}});
  require(input->rank == 2, "input ", *input, ": expected [num_tokens, hidden]");
  require_norm_weight(weight, input);
  require_same_shape({"residual", residual}, {"input", input});
  if (input->num_elements() == 0) return;
  run_on_stream(input_object, input->device, [&](Stream& stream) {
    kernels::add_rms_norm(*input, *residual, *weight, eps, *input, stream, weight_offset);
  });
}

using GatedActivation = void (*)(const TensorView&, const TensorView&, Stream&);

GatedActivation activation_named(std::string_view name) {
  if (name == "silu") return kernels::silu_mul;
  if (name == "gelu") return kernels::gelu_mul;
  require(name == "gelu_tanh", "activation ", name, ": expected silu, gelu or gelu_tanh");
  return kernels::gelu_tanh_mul;
}

void gated_activation(nb::handle input_object, nb::handle out_object, std::string_view name) {
  const GatedActivation activation = activation_named(name);
  const TensorArgument input("input", input_object, Accepts::kActivations),
      out("out", out_object, Accepts::kActivations, Access::kWrite);
  require_rows({{"input", input}, {"out", out}});
  require(input->rank == 2 && out->rank == 2 && input->shape[0] == out->shape[0] &&
              input->shape[1] == 2 * out->shape[1],
          "input ", *input, ", out ", *out, ": expected [num_tokens, 2 * dim] and [num_tokens, dim]");
  if (out->num_elements() == 0) return;
  run_on_stream(input_object, input->device, [&](Stream& stream) { activation(*input, *out, stream); });
}

// Checks positions on the CPU, since kernels do not.
void check_positions(View<const int32_t> positions, const TensorView& cos_sin) {
  if (cos_sin.device.type != DeviceType::kCpu) return;
  for (size_t i = 0; i < positions.size(); ++i)
    require(positions[i] >= 0 && positions[i] < cos_sin.shape[0], "positions[", i, "] is ", positions[i],
            ": cos_sin_cache has ", cos_sin.shape[0], " rows");
}

// Each token is a request with one token at its position.
kernels::RopeRowsArgs rope_args(const TensorView& heads, View<const int32_t> positions,
                                const TensorView& cos_sin, bool interleaved) {
  const int64_t num_pairs = cos_sin.shape[1] / 2;
  return {.from = heads,
          .to = heads,
          .num_reqs = static_cast<int32_t>(positions.size()),
          .seqlens = {.uniform = 1},
          .angles = {.cos = cos_sin.slice(1, 0, num_pairs),
                     .sin = cos_sin.slice(1, num_pairs, 2 * num_pairs),
                     .interleaved = interleaved,
                     .first_position = {.per_request = positions.data()}}};
}

void apply_rope(nb::handle positions_object, nb::handle query_object, nb::handle key_object,
                nb::handle cos_sin_object, bool interleaved) {
  const TensorArgument positions("positions", positions_object, Accepts::kInt32),
      query("query", query_object, Accepts::kActivations, Access::kWrite),
      key("key", key_object, Accepts::kActivations, Access::kWrite),
      cos_sin("cos_sin_cache", cos_sin_object, Accepts::kActivations);
  require_rows({{"query", query}, {"key", key}, {"cos_sin_cache", cos_sin}});
  require(cos_sin->rank == 2 && cos_sin->shape[1] % 2 == 0, "cos_sin_cache ", *cos_sin,
          ": expected [num_positions, rotary_dim], rotary_dim even");
  const View<const int32_t> each = int32_vector("positions", positions, query->device);
  for (const Named& named : {Named{"query", query}, Named{"key", key}}) {
    require(named.tensor->rank == 3 && named.tensor->shape[0] == std::ssize(each), named.name, " ",
            *named.tensor, ": expected [", each.size(), ", num_heads, head_size], a row for each position");
    require(named.tensor->shape[2] >= cos_sin->shape[1], named.name, " ", *named.tensor,
            ": expected a head_size of at least ", cos_sin->shape[1], ", the rotary_dim of cos_sin_cache");
  }
  check_positions(each, *cos_sin);
  run_on_stream(query_object, query->device, [&](Stream& stream) {
    for (const TensorArgument* heads : {&query, &key})
      if ((*heads)->num_elements() > 0)
        kernels::apply_rope_rows(rope_args(**heads, each, *cos_sin, interleaved), stream);
  });
}

void route(nb::handle logits_object, nb::handle experts_object, nb::handle weights_object, bool of_chosen) {
  const TensorArgument logits("gating_output", logits_object, Accepts::kFloat32),
      experts("topk_ids", experts_object, Accepts::kInt32, Access::kWrite),
      weights("topk_weights", weights_object, Accepts::kFloat32, Access::kWrite);
  require_rows({{"gating_output", logits}, {"topk_ids", experts}, {"topk_weights", weights}});
  require(logits->rank == 2 && logits->is_contiguous(), "gating_output ", *logits,
          ": expected [num_tokens, num_experts], contiguous");
  require(experts->rank == 2 && experts->is_contiguous() && experts->shape[0] == logits->shape[0] &&
              experts->shape[1] <= logits->shape[1],
          "topk_ids ", *experts, ": expected [", logits->shape[0], ", topk], topk at most ", logits->shape[1],
          ", contiguous");
  require_same_shape({"topk_weights", weights}, {"topk_ids", experts});
  if (experts->num_elements() == 0) return;
  using kernels::RouterWeights;
  run_on_stream(logits_object, logits->device, [&](Stream& stream) {
    kernels::route(
        {.logits = *logits,
         .rule = {.weights = of_chosen ? RouterWeights::kChosenExperts : RouterWeights::kAllExperts},
         .experts = *experts,
         .weights = *weights},
        stream);
  });
}

}  // namespace

void bind_layers(Module& module) {
  const auto object = [](const char* name) { return nb::arg(name).none(); };
  using nb::arg;
  module.def("rms_norm", &rms_norm, object("input"), object("weight"), arg("eps"), object("out"),
             arg("weight_offset"));
  module.def("add_rms_norm", &add_rms_norm, object("input"), object("residual"), object("weight"), arg("eps"),
             arg("weight_offset"));
  module.def("gated_activation", &gated_activation, object("input"), object("out"), arg("activation"));
  module.def("apply_rope", &apply_rope, object("positions"), object("query"), object("key"),
             object("cos_sin_cache"), arg("interleaved"));
  module.def("route", &route, object("logits"), object("experts"), object("weights"), arg("of_chosen"));
}

}  // namespace attend::python
