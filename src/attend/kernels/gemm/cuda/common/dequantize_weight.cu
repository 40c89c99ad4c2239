// Dequantizes a weight to 16-bit elements, and reorders inputs.
//
//   tile        weight: 8 inputs of a row per thread; inputs: one element per thread
//   warps       8, all alike
//   registers   few
//   shared      none
//   bytes       quantized values read once, elements written once; inputs: 16 bits read and written once
//   bound       memory
#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/gemm/cuda/common/dequantize_weight_kernel.h"
#include "attend/kernels/gemm/cuda/common/load_weight.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRun = 8;  // inputs per thread, all of one group

unsigned num_ctas(int64_t num_threads) {
  return static_cast<unsigned>((num_threads + kThreads - 1) / kThreads);
}

// Loads the values of a run before scales are applied.
__device__ void load_run(const QuantizedWeight& weight, int64_t row, int column, int zero,
                         float (&values)[kRun]) {
  const int64_t first = row * weight.in_features + column;
  if (weight.format == WeightFormat::kFp8 || weight.format == WeightFormat::kInt8) {
    const uint2 bytes = *reinterpret_cast<const uint2*>(static_cast<const uint8_t*>(weight.data) + first);
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const auto byte = static_cast<uint8_t>((i < 4 ? bytes.x : bytes.y) >> i % 4 * 8);
      __nv_fp8_e4m3 code;
      code.__x = byte;
      values[i] = weight.format == WeightFormat::kFp8 ? static_cast<float>(code)
                                                      : static_cast<float>(static_cast<int8_t>(byte));
    }
    return;
  }
  const uint32_t codes =
      *reinterpret_cast<const uint32_t*>(static_cast<const uint8_t*>(weight.data) + first / 2);
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    const uint32_t code = codes >> 4 * i & 15u;
    values[i] = weight.format == WeightFormat::kMxFp4 ? e2m1_to_float(code)
                                                      : static_cast<float>(static_cast<int>(code) - zero);
  }
}

// Launched without programmatic dependent launch on either side: the following GEMM prefetches the written
// elements as weights.
__global__ void __launch_bounds__(kThreads)
    dequantize_weight_kernel(const __grid_constant__ DequantizeWeightParams params) {
  const QuantizedWeight& weight = params.weight;
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int runs = weight.in_features / kRun;
  if (thread >= int64_t{params.num_rows} * runs) return;
  const int64_t tile_row = thread / runs, row = params.first_row + tile_row;
  const int first = static_cast<int>(thread % runs) * kRun;
  const int64_t group = row_scales_begin(weight, row) + input_group(weight, first);
  const float scale = load_scale(weight, group);
  const int zero = weight.format == WeightFormat::kInt4 ? load_zero(weight, group) : 0;
  float values[kRun];
  load_run(weight, row, first, zero, values);
#pragma unroll
  for (float& value : values) value *= scale;
  const int64_t to = tile_row * weight.in_features;
  if (weight.input_order == nullptr) return store_group(params.to, to + first, params.element, values);
  for (int i = 0; i < kRun; ++i)
    store_element(params.to, to + weight.input_order[first + i], params.element, values[i]);
}

// Orders launches only: starts after all earlier kernels have finished, and later kernels with early starts
// start after it.
__global__ void order_kernel() {}

__global__ void __launch_bounds__(kThreads)
    gather_inputs_kernel(const __grid_constant__ GatherInputsParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (thread >= int64_t{params.num_rows} * params.in_features) return;
  const int64_t row = thread / params.in_features;
  const int input = params.order[thread % params.in_features];
  static_cast<uint16_t*>(params.to)[thread] =
      static_cast<const uint16_t*>(params.x)[row * params.x_stride + input];
}

}  // namespace

void launch_dequantize_weight(const DequantizeWeightParams& params, void* stream) {
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  dequantize_weight_kernel<<<num_ctas(int64_t{params.num_rows} * (params.weight.in_features / kRun)),
                             kThreads, 0, cuda_stream>>>(params);
  attend::cuda::check(cudaGetLastError(), "linear: dequantize");
  order_kernel<<<1, 1, 0, cuda_stream>>>();
  attend::cuda::check(cudaGetLastError(), "linear: dequantize");
}

void launch_gather_inputs(const GatherInputsParams& params, void* stream) {
  launch_dependent<GatherInputsParams>(gather_inputs_kernel,
                                       dim3(num_ctas(int64_t{params.num_rows} * params.in_features)),
                                       kThreads, 0, stream, params, "linear: inputs");
}

}  // namespace attend::kernels::cuda
