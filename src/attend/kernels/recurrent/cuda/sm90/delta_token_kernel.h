// Convolution, gated delta rule and gated norm of single tokens (delta_token.cuh): parameters and launches.
#pragma once

#include "attend/kernels/recurrent/cuda/common/causal_conv_kernel.h"
#include "attend/kernels/recurrent/cuda/common/delta_kernels.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kDeltaTokenDim = 128, kDeltaTokenTaps = 4;  // of heads of k and of v; of the convolution
inline constexpr int kMaxDeltaTokenRatio = 4;                    // value heads per key head
// More requests read q and k too often.
inline constexpr int kMaxDeltaTokenRequests = 8;

// All have the function's dtype. delta.q, k and v are not read, and conv.out is not written.
struct DeltaTokenParams {
  CausalConvParams conv;  // inputs of q, k and v in multiples of four channels, at multiples of 8 bytes
  DeltaParams delta;      // without decays per channel
  GatedNormParams norm;   // x is delta.out
};
void launch_delta_token_bf16(const DeltaTokenParams& params, void* stream);
void launch_delta_token_f16(const DeltaTokenParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm90
