// A norm, the router behind it and the choice of experts, in one launch where a device can.
#pragma once

#include "attend/kernels/moe/route.h"
#include "attend/tensor/weight.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

struct NormRouteArgs {
  TensorView x;            // [num_tokens, hidden_size], contiguous
  TensorView norm;         // [hidden_size]: RMSNorm's weight
  float norm_eps = 1e-6f;  // its epsilon
  Linear router;           // [num_experts, hidden_size]
  RouterRule rule = {};
  TensorView correction = {};    // as of RouteArgs
  TensorView normalized;         // as x: what experts read
  TensorView experts, weights;   // as of RouteArgs
  TensorView arrivals = {};      // as of MoeExpertsArgs: becomes 0; empty: none
  bool batch_invariant = false;  // bits of rms_norm(), linear() and route() are wanted
};
// normalized = rms_norm(x), and route() of its product with the router. False where that takes several
// launches: then nothing is done. Few tokens on a GPU with clusters. The caller has checked its arguments: by
// check() of RouteArgs and as linear() would.
bool norm_route(const NormRouteArgs& args, Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
