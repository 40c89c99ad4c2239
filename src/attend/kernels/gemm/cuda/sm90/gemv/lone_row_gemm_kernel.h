// The GEMM of a lone row (lone_row_gemm.cuh): what crosses to the device, and the launches.
#pragma once

#include "attend/kernels/common/cuda/params.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kLoneRowOuts = 8;          // of a CTA: divide out_features
inline constexpr int kLoneRowInputUnit = 64;    // divides in_features
inline constexpr int kMaxLoneRowInputs = 4096;  // whose weights the registers of a CTA hold
inline constexpr int kLoneRowCtasOfSm = 2;

// out = W x (+ bias) (+ out). x, the weight and out are of the function's type, and x and rows of the weight
// begin at multiples of 16 bytes.
struct LoneRowGemmParams {
  const void* x;
  const void* weight;
  DeviceVector bias;
  void* out;
  int32_t in_features, out_features;
  bool accumulate;  // what out holds is added
};
void launch_lone_row_gemm_bf16(const LoneRowGemmParams& params, void* stream);
void launch_lone_row_gemm_f16(const LoneRowGemmParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm90
