// Norm, router and choice in one launch on sm_90a.
#pragma once

#include "attend/kernels/moe/cuda/common/moe_kernels.h"
#include "attend/kernels/moe/experts.h"

namespace attend::kernels::cuda::sm90 {

// Norm, router and choice in one launch on sm_90a (norm_route.cuh): what crosses to the device, and the
// launches.

inline constexpr int kNormRouteExperts = 16;    // of a CTA of the cluster
inline constexpr int kMaxNormRouteCluster = 8;  // CTAs
inline constexpr int kNormRouteTokens = 8;      // of a cluster
// As many clusters as an H200 runs at once.
inline constexpr int kMaxNormRouteTokens = 16 * kNormRouteTokens;
inline constexpr int kNormRouteInputs = 32;       // divide in_features
inline constexpr int kMaxNormRouteInputs = 4096;  // in_features
inline constexpr int kNormRouteWarps = 16;

struct NormRouteParams {
  const void* x;       // [num_tokens, in_features], as everything here of the function's type
  const void* norm;    // [in_features]
  const void* router;  // [num_experts, in_features], num_experts a multiple of kNormRouteExperts
  DeviceVector bias;   // [num_experts]
  void* normalized;    // as x
  float norm_eps;
  int32_t in_features;
  RouteParams route;  // logits are not in memory: null
};

// Rows of x, which 16 bytes keep in different banks; partial sums of the warps, of the norm and the logits.
constexpr int norm_route_shared_bytes(int in_features, int num_experts) {
  constexpr int rows = kNormRouteTokens;
  return rows * (2 * in_features + 16) + 4 * (kNormRouteWarps * kNormRouteExperts * rows) +
         4 * kNormRouteWarps * rows + 4 * rows * num_experts;
}

void launch_norm_route_bf16(const NormRouteParams& params, void* stream);
void launch_norm_route_f16(const NormRouteParams& params, void* stream);

// As kernels::norm_route, on a GPU that runs code for sm_90a.
bool norm_route(const NormRouteArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
