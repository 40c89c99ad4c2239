// Dense layers of a single row whose weight the registers of all SMs hold, on GPUs of compute capability 9.0.
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm90 {

// The GEMM of a lone row (gemv.cuh): what crosses to the device, and the launches.

inline constexpr int kGemvOuts = 8;          // of a CTA: divide out_features
inline constexpr int kGemvInputUnit = 64;    // divides in_features
inline constexpr int kMaxGemvInputs = 4096;  // whose weights the registers of a CTA hold
inline constexpr int kGemvCtasPerSm = 2;

// out = W x (+ bias) (+ out). x, the weight and out are of the function's type, and x and rows of the weight
// begin at multiples of 16 bytes.
struct GemvParams {
  const void* x;
  const void* weight;
  DeviceVector bias;
  void* out;
  int32_t in_features, out_features;
  bool accumulate;  // what out holds is added
};
void launch_gemv_bf16(const GemvParams& params, void* stream);
void launch_gemv_f16(const GemvParams& params, void* stream);

// For what the candidate kGemv of choose.h takes: out = x weight^T (+ bias) (+ out). There is no norm.
void gemv(const LinearArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
