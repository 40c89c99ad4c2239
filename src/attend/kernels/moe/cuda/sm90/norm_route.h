// RMSNorm, router and expert selection in one launch on sm_90a.
#pragma once

#include "attend/kernels/moe/cuda/common/moe_kernels.h"
#include "attend/kernels/moe/experts.h"

namespace attend::kernels::cuda::sm90 {

// Norm, router and selection in one launch on sm_90a (norm_route.cuh): parameters and launches.

inline constexpr int kNormRouteExperts = 16;  // of a set; a CTA of the cluster has one, two or four sets
// In CTAs. One cluster reads the router faster if it is larger than portable ones may be.
inline constexpr int kMaxNormRouteCluster = 8, kMaxSingleNormRouteCluster = 16;
inline constexpr int kMaxNormRouteSets = 4;
inline constexpr int kNormRouteTokens = 8;  // per cluster
// Concurrent clusters on an H200 times tokens per cluster.
inline constexpr int kMaxNormRouteTokens = 16 * kNormRouteTokens;
inline constexpr int kNormRouteInputs = 32;       // divides in_features
inline constexpr int kMaxNormRouteInputs = 4096;  // maximum in_features
inline constexpr int kNormRouteWarps = 16;

struct NormRouteParams {
  const void* x;            // [num_tokens, in_features]; all in the function's dtype
  const void* norm;         // [in_features]; may also be f32
  const void* router;       // [num_experts, in_features] with norm_route_sets(num_experts) > 0
  const void* shared_gate;  // [in_features]: another product; null: none
  float* shared_gate_out;   // [num_tokens]
  DeviceVector bias;        // [num_experts]
  void* normalized;         // same layout as x
  bool norm_is_f32;
  float norm_eps;
  int32_t in_features;
  RouteParams route;  // logits is null: they are not in memory
};

// Returns the fewest sets per CTA for this number of experts; 0 if it is not supported.
constexpr int norm_route_sets(int64_t num_experts, int max_cluster = kMaxNormRouteCluster) {
  for (int sets = 1; sets <= kMaxNormRouteSets; sets *= 2)
    if (num_experts % (sets * kNormRouteExperts) == 0 &&
        num_experts <= sets * kNormRouteExperts * max_cluster)
      return sets;
  return 0;
}

// Returns the maximum shared-memory bytes: rows of x, padded by 16 bytes to avoid bank conflicts; partial
// sums of the warps, of the norm, of the shared gate and the logits.
constexpr int norm_route_shared_bytes(int in_features, int num_experts) {
  constexpr int rows = kNormRouteTokens;
  return rows * (2 * in_features + 16) +
         4 * (kNormRouteWarps * norm_route_sets(num_experts) * kNormRouteExperts * rows) +
         4 * 2 * kNormRouteWarps * rows + 4 * rows * num_experts;
}

void launch_norm_route_bf16(const NormRouteParams& params, void* stream);
void launch_norm_route_f16(const NormRouteParams& params, void* stream);

// Like kernels::norm_route, on a GPU that runs code for sm_90a.
bool norm_route(const NormRouteArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
