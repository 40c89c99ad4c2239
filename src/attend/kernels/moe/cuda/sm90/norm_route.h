// RMSNorm, router and expert selection in one launch on sm_90a.
#pragma once

#include "attend/kernels/moe/cuda/common/moe_kernels.h"
#include "attend/kernels/moe/experts.h"

namespace attend::kernels::cuda::sm90 {

// Norm, router and selection in one launch on sm_90a (norm_route.cuh): parameters and launches.

inline constexpr int kNormRouteExperts = 16;    // per CTA of the cluster
inline constexpr int kMaxNormRouteCluster = 8;  // in CTAs
inline constexpr int kNormRouteTokens = 8;      // per cluster
// Concurrent clusters on an H200 times tokens per cluster.
inline constexpr int kMaxNormRouteTokens = 16 * kNormRouteTokens;
inline constexpr int kNormRouteInputs = 32;       // divides in_features
inline constexpr int kMaxNormRouteInputs = 4096;  // maximum in_features
inline constexpr int kNormRouteWarps = 16;

struct NormRouteParams {
  const void* x;       // [num_tokens, in_features]; all in the function's dtype
  const void* norm;    // [in_features]
  const void* router;  // [num_experts, in_features], num_experts a multiple of kNormRouteExperts
  DeviceVector bias;   // [num_experts]
  void* normalized;    // same layout as x
  float norm_eps;
  int32_t in_features;
  RouteParams route;  // logits is null: they are not in memory
};

// Returns the shared-memory bytes: rows of x, padded by 16 bytes to avoid bank conflicts; partial sums of the
// warps, of the norm and the logits.
constexpr int norm_route_shared_bytes(int in_features, int num_experts) {
  constexpr int rows = kNormRouteTokens;
  return rows * (2 * in_features + 16) + 4 * (kNormRouteWarps * kNormRouteExperts * rows) +
         4 * kNormRouteWarps * rows + 4 * rows * num_experts;
}

void launch_norm_route_bf16(const NormRouteParams& params, void* stream);
void launch_norm_route_f16(const NormRouteParams& params, void* stream);

// Like kernels::norm_route, on a GPU that runs code for sm_90a.
bool norm_route(const NormRouteArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
