// Linear layers of a single row with a weight that fits into the registers of all SMs, on GPUs of compute
// capability 9.0.
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm90 {

// GEMV (gemv.cuh): parameters and launches.

inline constexpr int kGemvOuts = 8;          // per CTA; divides out_features
inline constexpr int kGemvInputUnit = 64;    // divides in_features
inline constexpr int kMaxGemvInputs = 4096;  // inputs with weights that fit into the registers of a CTA
inline constexpr int kGemvCtasPerSm = 2;

// out = W x (+ bias) (+ out). x, the weight and out have the function's dtype; x and rows of the weight start
// at multiples of 16 bytes.
struct GemvParams {
  const void* x;
  const void* weight;
  DeviceVector bias;
  void* out;
  int32_t in_features, out_features;
  bool accumulate;  // adds to the contents of out
};
void launch_gemv_bf16(const GemvParams& params, void* stream);
void launch_gemv_f16(const GemvParams& params, void* stream);

// Computes problems of the candidate kGemv of choose.h: out = x weight^T (+ bias) (+ out). Norms are not
// supported.
void gemv(const LinearArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
