#include <cmath>
#include <string_view>
#include <utility>

#include "attend/base/error.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/recurrent/cuda/common/delta_kernels.h"
#include "attend/kernels/recurrent/cuda/recurrent.h"

namespace attend::kernels::cuda {
namespace {

GateRows gate_rows(const TensorView& view) { return {view.data, view.strides[0], view.strides[1]}; }

DeltaParams delta_params(const GatedDeltaArgs& args) {
  const int64_t dim_k = args.k.shape[2];
  return {.q = token_rows(args.q),
          .k = token_rows(args.k),
          .v = token_rows(args.v),
          .out = out_rows(args.out),
          .alpha = gate_rows(args.alpha),
          .beta = gate_rows(args.beta),
          .a_log = args.a_log.as<const float>(),
          .dt_bias = args.dt_bias.as<const float>(),
          .state = args.state.as<float>(),
          .batch = step_batch(args.batch, args.out.shape[0]),
          .beta_scale = args.beta_scale,
          .q_scale = 1.0f / std::sqrt(static_cast<float>(dim_k)),
          .num_v_heads = static_cast<int32_t>(args.v.shape[1]),
          .ratio = static_cast<int32_t>(args.alpha.shape[2]),
          .dim_k = static_cast<int32_t>(dim_k),
          .dim_v = static_cast<int32_t>(args.v.shape[2]),
          .element = to_element_type(args.out.dtype),
          .aligned = dim_k % 4 == 0 && rows_aligned({&args.q, &args.k, &args.state})};
}

}  // namespace

void gated_delta_rule(const GatedDeltaArgs& args, Stream& stream) {
  for (const auto& [name, view] : {std::pair<std::string_view, const TensorView*>{"q", &args.q},
                                   {"k", &args.k},
                                   {"v", &args.v},
                                   {"alpha", &args.alpha},
                                   {"beta", &args.beta}})
    require_dtype(name, *view, args.out.dtype);
  launch_delta_step(delta_params(args), stream.handle);
}

void gated_norm(const GatedNormArgs& args, Stream& stream) {
  constexpr int64_t kGroup = 8;  // elements per aligned access
  const int64_t num_heads = args.x.shape[1], dim = args.x.shape[2];
  launch_gated_norm({.x = device_rows(args.x),
                     .gate = device_rows(args.gate),
                     .weight = device_vector(args.weight),
                     .eps = args.eps,
                     .num_rows = static_cast<int32_t>(args.x.shape[0] * num_heads),
                     .num_heads = static_cast<int32_t>(num_heads),
                     .heads_per_group = static_cast<int32_t>(args.gate.shape[2] / dim),
                     .dim = static_cast<int32_t>(dim),
                     .aligned = dim % kGroup == 0 && rows_aligned({&args.x, &args.gate}),
                     .weight_aligned = dim % kGroup == 0 && rows_aligned({&args.weight})},
                    stream.handle);
}

}  // namespace attend::kernels::cuda
