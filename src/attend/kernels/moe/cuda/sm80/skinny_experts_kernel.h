// Experts of few rows each (skinny_experts.cuh): what crosses to the device, and the launches.
#pragma once

#include "attend/kernels/moe/cuda/common/moe_kernels.h"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kTinyPairs = 32, kMaxSkinnyPairs = 2048, kMaxSkinnyMxFp4Pairs = 512;
inline constexpr int kSkinnyOutputs = 16;  // of a work tile: divide out_features
inline constexpr int kMaxSkinnyTokens = 256;

// One of the two products of all experts. Gated: out[pair] = act(W x[token of the pair]). Else, `sums`:
// out[token] (+)= sum over its pairs, in the order of their experts, of weight * (W x[pair] + b); or
// out[pair] = W x[pair] + b. x is of the function's type, and rows of x and of the weight begin at multiples
// of 16 bytes, also of codes; out_features is a multiple of kSkinnyOutputs; up to kMaxSkinnyPairs pairs
// (mxfp4: kMaxSkinnyMxFp4Pairs) of kMaxSkinnyTokens tokens. The weight is plain, of the function's type, or
// mxfp4 and that bf16.
struct SkinnyExpertsParams {
  const void* x;
  QuantizedWeight weight;  // [num_experts, out_features, in_features]; gated: twice as many outputs
  int64_t num_scales;      // of mxfp4
  void* out;               // contiguous rows of out_features
  const int32_t* experts;  // [num_tokens, top_k]
  const float* weights;    // of each pair, multiplied with what experts give; null: 1
  int32_t num_tokens, top_k, num_experts, in_features, out_features;
  bool gated, alternating;
  bool sums, accumulate;    // `accumulate`: of sums, what out holds is added
  ExpertEpilogue epilogue;  // with input_weights of pairs
};
// Rows of an expert beyond kSkinnyRows read its weights once more. A row's bits do not depend on the others.
inline constexpr int kSkinnyRows = 8;
void launch_skinny_experts_bf16(const SkinnyExpertsParams& params, void* stream);
void launch_skinny_experts_f16(const SkinnyExpertsParams& params, void* stream);
void launch_skinny_mxfp4_experts_bf16(const SkinnyExpertsParams& params, void* stream);

// Experts of few rows each in mxfp4 (direct_mxfp4_experts.cu): what crosses to the device, and the launch.

inline constexpr int kMaxDirectPairs = kMaxSkinnyMxFp4Pairs;
// Inputs and outputs of either product are multiples of kDirectInputs, and 8 rows of x of kMaxDirectInputs
// fit beside what else is in kMaxDirectBytes of shared memory.
inline constexpr int kDirectInputs = 64, kMaxDirectInputs = 3840, kMaxDirectBytes = 226 << 10;

// As launch_skinny_mxfp4_experts_bf16, gated or else rows (no sums). Scales begin at a multiple of 16 bytes.
// Gated, each eight outputs of a row lie in the order in which the product behind it, which is the same
// function's, takes them. x is within the limits of mxfp4_sums.cuh.
void launch_direct_mxfp4_experts_bf16(const SkinnyExpertsParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
