// Experts with few rows each (skinny_experts.cuh): parameters and launches.
#pragma once

#include "attend/kernels/moe/cuda/common/moe_kernels.h"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kTinyPairs = 32, kMaxSkinnyPairs = 2048, kMaxSkinnyMxFp4Pairs = 512;
inline constexpr int kSkinnyOutputs = 16;  // per work tile; divides out_features
inline constexpr int kMaxSkinnyTokens = 256;

// Shared expert of a single token: num_parts experts of the same shape that follow those of the token.
// `weight` has all gate rows of the parts, then all up rows (or only up rows), [.., in_features]; for sums it
// is [out_features, num_parts * in_features].
struct SharedExpertParts {
  const void* weight;
  const float* gate;  // one value; its sigmoid is the factor of the output; null: 1
  int32_t num_parts;  // 0: no shared expert
};

// One of the two products of all experts.
//   gated   out[pair] = act(W x[token of the pair])
//   sums    out[token] (+)= sum over its pairs, in the order of their experts, of weight * (W x[pair] + b)
//   else    out[pair] = W x[pair] + b
// x has the function's dtype. Rows of x and of the weight, also of quantized values, start at multiples of 16
// bytes. out_features is a multiple of kSkinnyOutputs. Up to kMaxSkinnyPairs pairs (mxfp4:
// kMaxSkinnyMxFp4Pairs) of kMaxSkinnyTokens tokens. The weight is plain in the function's dtype, or mxfp4
// with bf16.
struct SkinnyExpertsParams {
  const void* x;
  QuantizedWeight weight;  // [num_experts, out_features, in_features]; if gated, 2 out_features
  int64_t num_scales;      // mxfp4 only
  void* out;               // contiguous rows of out_features
  const int32_t* experts;  // [num_tokens, top_k]
  const float* weights;    // per pair: factor of the expert's output; null: 1
  int32_t num_tokens, top_k, num_experts, in_features, out_features;
  bool gated, alternating;
  bool sums, accumulate;          // `accumulate`: sums are added to the contents of out
  ExpertEpilogue epilogue;        // input_weights are indexed by pair
  SharedExpertParts shared = {};  // single-token experts with a plain weight only
};
// Each further kSkinnyRows rows of an expert read its weights again. A row's bits do not depend on other
// rows.
inline constexpr int kSkinnyRows = 8;
void launch_skinny_experts_bf16(const SkinnyExpertsParams& params, void* stream);
void launch_skinny_experts_f16(const SkinnyExpertsParams& params, void* stream);
void launch_skinny_mxfp4_experts_bf16(const SkinnyExpertsParams& params, void* stream);

// Experts with few rows each in mxfp4 (direct_mxfp4_experts.cu): parameters and launch.

inline constexpr int kMaxDirectPairs = kMaxSkinnyMxFp4Pairs;
// Inputs and outputs of either product are multiples of kDirectInputs. 8 rows of x of kMaxDirectInputs fit
// into kMaxDirectBytes of shared memory next to everything else.
inline constexpr int kDirectInputs = 64, kMaxDirectInputs = 3840, kMaxDirectBytes = 226 << 10;

// Like launch_skinny_mxfp4_experts_bf16, either gated or with rows (no sums). Scales start at a multiple of
// 16 bytes. If gated, each eight outputs of a row are written in the order in which the second product of the
// same function reads them. x is within the limits of mxfp4_sums.cuh.
void launch_direct_mxfp4_experts_bf16(const SkinnyExpertsParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
