// Norm, router and choice in one launch on sm_90a (norm_route.cuh): what crosses to the device, and the
// launches.
#pragma once

#include "attend/kernels/moe/cuda/common/moe_kernels.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kNormRouteExperts = 16;      // of a CTA of the cluster
inline constexpr int kMaxNormRouteCluster = 8;    // CTAs
inline constexpr int kMaxNormRouteTokens = 32;    // whose rows fit: norm_route_shared_bytes()
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

constexpr int norm_route_row_pieces(int num_tokens) { return num_tokens <= 8 ? 1 : num_tokens <= 16 ? 2 : 4; }
// Rows of x, which 16 bytes keep in different banks; partial sums of the warps, of the norm and the logits.
constexpr int norm_route_shared_bytes(int num_tokens, int in_features, int num_experts) {
  const int rows = 8 * norm_route_row_pieces(num_tokens);
  return rows * (2 * in_features + 16) + 4 * (kNormRouteWarps * kNormRouteExperts * rows) +
         4 * kNormRouteWarps * rows + 4 * rows * num_experts;
}

void launch_norm_route_bf16(const NormRouteParams& params, void* stream);
void launch_norm_route_f16(const NormRouteParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm90
