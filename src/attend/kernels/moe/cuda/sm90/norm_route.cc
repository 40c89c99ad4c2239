#include "attend/kernels/moe/cuda/sm90/norm_route.h"

#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/common/cuda/view_params.h"

namespace attend::kernels::cuda::sm90 {

bool norm_route(const NormRouteArgs& args, Stream& stream) {
  const Weight& router = args.router.weight;
  const int64_t num_tokens = args.x.shape[0], in_features = args.x.shape[1],
                num_experts = router.out_features();
  const DType dtype = args.x.dtype;
  const Weight& gate = args.shared_gate.weight;
  const bool fits_gate = gate.empty() || (gate.format == WeightFormat::kPlain && gate.data.dtype == dtype &&
                                          args.shared_gate.bias.empty() && rows_aligned({&gate.data}));
  const bool fits = dtype != DType::kF32 && router.format == WeightFormat::kPlain && fits_gate &&
                    router.data.dtype == dtype &&
                    (args.norm.dtype == dtype || args.norm.dtype == DType::kF32) &&
                    rows_aligned({&args.x, &args.normalized, &router.data, &args.norm}) &&
                    num_tokens <= kMaxNormRouteTokens && in_features <= kMaxNormRouteInputs &&
                    in_features % kNormRouteInputs == 0 && norm_route_sets(num_experts) > 0 &&
                    norm_route_shared_bytes(static_cast<int>(in_features), static_cast<int>(num_experts)) <=
                        gpu_facts(stream.device).shared_bytes;
  if (!fits) return false;
  const NormRouteParams params{.x = args.x.data,
                               .norm = args.norm.data,
                               .router = router.data.data,
                               .shared_gate = gate.empty() ? nullptr : gate.data.data,
                               .shared_gate_out = gate.empty() ? nullptr : args.shared_gate_out.as<float>(),
                               .bias = device_vector(args.router.bias),
                               .normalized = args.normalized.data,
                               .norm_is_f32 = args.norm.dtype == DType::kF32,
                               .norm_eps = args.norm_eps,
                               .in_features = static_cast<int32_t>(in_features),
                               .route = route_params({.logits = {},
                                                      .rule = args.rule,
                                                      .correction = args.correction,
                                                      .experts = args.experts,
                                                      .weights = args.weights},
                                                     num_experts)};
  const auto launch = dtype == DType::kBF16 ? launch_norm_route_bf16 : launch_norm_route_f16;
  launch(params, stream.handle);
  return true;
}

}  // namespace attend::kernels::cuda::sm90
