// A quantised weight as elements, scales behind a product, and inputs in another order.
//
//   tile        widening: 8 inputs of a row a thread; sums and inputs: an element a thread
//   warps       8, all alike
//   registers   few
//   shared      none
//   bytes       codes once in, elements once out; 16 bits or sums once in and out
//   bound       memory
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/gemm/cuda/common/load_weight.cuh"
#include "attend/kernels/gemm/cuda/common/widen_weight_kernel.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRun = 8;  // inputs of a thread, all of one group

unsigned num_ctas(int64_t num_threads) {
  return static_cast<unsigned>((num_threads + kThreads - 1) / kThreads);
}

// The numbers that codes stand for, before scales.
__device__ float code_value(const QuantisedWeight& weight, int64_t row, int column, int zero) {
  if (weight.format == WeightFormat::kFp8)
    return load_element(weight.data, row * weight.in_features + column, Element::kF8E4M3);
  const uint32_t code = load_code(weight, row, column);
  return weight.format == WeightFormat::kMxFp4 ? e2m1_to_float(code)
                                               : static_cast<float>(static_cast<int>(code) - zero);
}

// Launched without overlap on either side: it writes what a GEMM behind it reads early as weights.
__global__ void __launch_bounds__(kThreads)
    widen_weight_kernel(const __grid_constant__ WidenWeightParams params) {
  const QuantisedWeight& weight = params.weight;
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int runs = weight.in_features / kRun;
  if (thread >= int64_t{params.num_rows} * runs) return;
  const int64_t tile_row = thread / runs, row = params.first_row + tile_row;
  const int first = static_cast<int>(thread % runs) * kRun;
  const int64_t group = scales_of_row(weight, row) + group_of_input(weight, first);
  const float scale = params.scaled ? load_scale(weight, group) : 1.0f;
  const int zero = weight.format == WeightFormat::kInt4 ? load_zero(weight, group) : 0;
  for (int i = 0; i < kRun; ++i) {
    const int column = first + i;
    const int input = weight.input_order != nullptr ? weight.input_order[column] : column;
    store_element(params.to, tile_row * weight.in_features + input, params.element,
                  code_value(weight, row, column, zero) * scale);
  }
}

// Nothing but an order: it begins when all before it has ended, and what may begin early begins behind it.
__global__ void order_kernel() {}

__global__ void __launch_bounds__(kThreads)
    scale_sums_kernel(const __grid_constant__ ScaleSumsParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (thread >= int64_t{params.num_rows} * params.num_outs) return;
  const int64_t row = thread / params.num_outs;
  const int column = static_cast<int>(thread % params.num_outs);
  const int64_t to = row * params.out_stride + column, weight_row = params.first_row + column;
  float value = params.sums[thread] * load_scale(params.weight, scales_of_row(params.weight, weight_row));
  if (params.bias.data != nullptr) value += load_element(params.bias.data, weight_row, params.bias.element);
  if (params.accumulate) value += load_element(params.out, to, params.out_element);
  store_element(params.out, to, params.out_element, value);
}

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

void launch_widen_weight(const WidenWeightParams& params, void* stream) {
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  widen_weight_kernel<<<num_ctas(int64_t{params.num_rows} * (params.weight.in_features / kRun)), kThreads, 0,
                        cuda_stream>>>(params);
  attend::cuda::check(cudaGetLastError(), "linear: widening");
  order_kernel<<<1, 1, 0, cuda_stream>>>();
  attend::cuda::check(cudaGetLastError(), "linear: widening");
}

void launch_scale_sums(const ScaleSumsParams& params, void* stream) {
  launch_dependent<ScaleSumsParams>(scale_sums_kernel,
                                    dim3(num_ctas(int64_t{params.num_rows} * params.num_outs)), kThreads, 0,
                                    stream, params, "linear: scales");
}

void launch_gather_inputs(const GatherInputsParams& params, void* stream) {
  launch_dependent<GatherInputsParams>(gather_inputs_kernel,
                                       dim3(num_ctas(int64_t{params.num_rows} * params.in_features)),
                                       kThreads, 0, stream, params, "linear: inputs");
}

}  // namespace attend::kernels::cuda
