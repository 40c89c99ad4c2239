#include "attend/kernels/gemm/cuda/linear.h"

#include <array>
#include <sstream>
#include <string>

#include "attend/base/error.h"
#include "attend/kernels/common/choose_row.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/gemm/cuda/common/batch_invariant_gemm_kernel.h"
#include "attend/kernels/gemm/cuda/matmul.h"
#include "attend/kernels/gemm/cuda/sm80/skinny_gemm.h"
#include "attend/kernels/gemm/cuda/sm80/tiled_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/batch_invariant/batch_invariant_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/gated_mlp/gated_mlp_gemm.h"
#include "attend/kernels/gemm/cuda/sm90/gemv/gemv.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"
#include "attend/kernels/norm_rope/cuda/elementwise_kernels.h"

namespace attend::kernels::cuda {
namespace {

void require_x_dtype(const TensorView& x, const Weight& weight) {
  if (weight.format == WeightFormat::kPlain && weight.data.dtype != x.dtype)
    fail(ErrorCode::kUnsupported, "weight ", weight, ": expected the dtype of x, ", x.dtype);
}

GemmNorm to_gemm_norm(const InputNorm& norm) {
  if (norm.weight.empty()) return GemmNorm::kNone;
  return norm.deferred ? GemmNorm::kDeferred : GemmNorm::kInline;
}

std::string description(const GemmProblem& problem, const GemmRow& row) {
  std::ostringstream text;
  text << problem.num_rows << " x " << problem.in_features << " -> " << problem.out_features << ", "
       << problem.dtype;
  if (problem.format != WeightFormat::kPlain) text << " by " << to_string(problem.format);
  if (problem.out_dtype != problem.dtype) text << " to " << problem.out_dtype;
  if (problem.norm != GemmNorm::kNone)
    text << (row.norms(problem) ? ", norm in the kernel" : ", norm in a separate launch");
  return text.str();
}

void launch_gated_mlp(const LinearArgs& args, bool, Stream& stream) { sm90::gated_mlp_gemm(args, stream); }

bool launch_split_k(const LinearArgs& args, bool gated, Stream& stream) {
  return sm90::swap_ab_gemm(args, gated, stream);
}

void launch_gemv(const LinearArgs& args, bool, Stream& stream) { sm90::gemv(args, stream); }

void launch_skinny(const LinearArgs& args, bool gated, Stream& stream) {
  sm80::launch_skinny_gemm(sm80::skinny_gemm_params(args, gated), args.x.dtype, stream.handle);
}

void launch_skinny_quantized_linear(const LinearArgs& args, bool gated, Stream& stream) {
  sm80::launch_skinny_quantized(sm80::skinny_quantized_params(args, gated), args.x.dtype, stream.handle);
}

void launch_invariant_sm90(const LinearArgs& args, bool gated, Stream& stream) {
  sm90::batch_invariant_gemm(args, gated, stream);
}

BatchInvariantGemmParams batch_invariant_params(const LinearArgs& args) {
  return {.x = args.x.data,
          .weight = args.weight.data.data,
          .x_stride = args.x.strides[0],
          .bias = device_vector(args.bias),
          .out = args.out.data,
          .out_stride = args.out.strides[0],
          .num_rows = static_cast<int32_t>(args.x.shape[0]),
          .in_features = static_cast<int32_t>(args.x.shape[1]),
          .out_features = static_cast<int32_t>(args.out.shape[1]),
          .accumulate = args.accumulate,
          .out_element = to_element_type(args.out.dtype)};
}

void launch_invariant_sm80(const LinearArgs& args, bool, Stream& stream) {
  const auto launch = args.x.dtype == DType::kBF16 ? sm80::launch_batch_invariant_gemm_bf16
                                                   : sm80::launch_batch_invariant_gemm_f16;
  launch(batch_invariant_params(args), stream.handle);
}

void launch_naive(const LinearArgs& args, bool, Stream& stream) {
  launch_naive_gemm({.product = batch_invariant_params(args),
                     .weight = quantized_weight(args.weight),
                     .element = to_element_type(args.x.dtype)},
                    stream.handle);
}

void launch_quantized(const LinearArgs& args, bool, Stream& stream) { quantized_linear(args, stream); }

void launch_dequantize_then_gemm(const LinearArgs& args, bool, Stream& stream) {
  dequantize_then_linear(args, stream);
}

// out[i] = bias, or out[i] += bias.
void put_bias(const TensorView& bias, const TensorView& out, bool add, Stream& stream) {
  const int64_t num_columns = out.shape[1];
  const DeviceVector from = device_vector(bias);
  launch_copy_rows({.from = {const_cast<void*>(from.data), 0, 0, 1, from.element},
                    .out = device_rows(out),
                    .rows = nullptr,
                    .num_rows = static_cast<int32_t>(out.shape[0]),
                    .num_columns = static_cast<int32_t>(num_columns),
                    .aligned = num_columns % 8 == 0 && rows_aligned({&bias, &out}),
                    .add = add},
                   stream.handle);
}

void launch_cublaslt(const LinearArgs& args, bool, Stream& stream) {
  if (args.bias.empty() || adds_bias(args.bias, args.out))
    return matmul(args.x, args.weight.data, args.out, args.accumulate, stream, args.bias);
  put_bias(args.bias, args.out, /*add=*/args.accumulate, stream);
  matmul(args.x, args.weight.data, args.out, /*accumulate=*/true, stream);
}

template <auto kMultiply>
void launch_fp8(const LinearArgs& args, bool, Stream& stream) {
  if (args.bias.empty()) return kMultiply(args, stream);
  put_bias(args.bias, args.out, /*add=*/args.accumulate, stream);
  LinearArgs added = args;
  added.accumulate = true;
  kMultiply(added, stream);
}

// Wraps a launch that cannot defer a norm.
template <auto kLaunch>
bool defers_nothing(const LinearArgs& args, bool gated, Stream& stream) {
  kLaunch(args, gated, stream);
  return false;
}

// Launches by GemmKernel. Each returns true if the next norm is deferred. kGemmThenSilu calls linear() again.
constexpr std::array<bool (*)(const LinearArgs& args, bool gated, Stream& stream), kNumGemmKernels> kLaunches{
    defers_nothing<launch_gated_mlp>,
    launch_split_k,
    defers_nothing<launch_skinny_quantized_linear>,
    defers_nothing<launch_fp8<fp8_linear>>,
    defers_nothing<launch_fp8<fp8_block_linear>>,
    defers_nothing<sm90::scaled_quantized_gemm>,
    launch_split_k,
    defers_nothing<launch_gemv>,
    defers_nothing<launch_skinny>,
    defers_nothing<launch_invariant_sm90>,
    defers_nothing<launch_invariant_sm80>,
    defers_nothing<launch_quantized>,
    defers_nothing<launch_dequantize_then_gemm>,
    defers_nothing<launch_cublaslt>,
    defers_nothing<launch_naive>,
    nullptr};

const GemmRow& reported(const GemmRow& row, const GemmProblem& problem) {
  report_choice(problem.gated ? "gated_linear" : "linear", row, [&] { return description(problem, row); });
  return row;
}

bool launch(const GemmRow& row, const GemmProblem& problem, LinearArgs args, Stream& stream) {
  if (problem.norm != GemmNorm::kNone && !row.norms(problem)) {
    rms_norm(args.x, args.norm.weight, args.norm.eps, args.norm.normalized, stream, /*weight_offset=*/0.0f);
    args.x = args.norm.normalized;
    args.norm = {};
  }
  if (problem.num_rows > gemm_tuning(gpu_facts(stream.device)).deferred_norm_max_rows)
    args.next_norm = nullptr;
  return kLaunches[static_cast<size_t>(row.kernel)](args, problem.gated, stream);
}

}  // namespace

GemmProblem gemm_problem(const LinearArgs& args, bool gated) {
  constexpr int64_t kBytes = 8;
  const auto element_bytes = static_cast<int64_t>(size_of(args.out.dtype));
  return {.num_rows = args.x.shape[0],
          .in_features = args.x.shape[1],
          .out_features = args.out.shape[1],
          .dtype = args.x.dtype,
          .out_dtype = args.out.dtype,
          .gated = gated,
          .batch_invariant = args.batch_invariant,
          .x_aligned = rows_aligned({&args.x}),
          .weight_aligned = rows_aligned({&args.weight.data}),
          .out_aligned_8 = reinterpret_cast<uintptr_t>(args.out.data) % kBytes == 0 &&
                           args.out.strides[0] * element_bytes % kBytes == 0,
          .norm = to_gemm_norm(args.norm),
          .norm_dtype = args.norm.weight.dtype,
          .norm_aligned = rows_aligned({&args.norm.weight}),
          .normalized_aligned = rows_aligned({&args.norm.normalized}),
          .format = args.weight.format,
          .group_outs = args.weight.group_outs,
          .group_ins = args.weight.group_ins,
          .scale_dtype = args.weight.scales.dtype,
          .has_zeros = !args.weight.zeros.empty(),
          .scales_aligned = words_aligned({&args.weight.scales, &args.weight.zeros}),
          .reorders = !args.weight.input_order.empty(),
          .has_workspace = !args.workspace.empty(),
          .rounds_x = args.rounds_x,
          .has_fp8_matmul = args.rounds_x && args.weight.format == WeightFormat::kFp8 && has_scaled_matmul()};
}

bool linear(const LinearArgs& args, Stream& stream) {
  require_x_dtype(args.x, args.weight);
  if (args.out.num_elements() == 0) return false;
  const GemmProblem problem = gemm_problem(args, /*gated=*/false);
  return launch(reported(choose(problem, gpu_facts(stream.device)), problem), problem, args, stream);
}

bool gated_linear(const GatedLinearArgs& args, Stream& stream) {
  require_x_dtype(args.x, args.weight);
  if (args.out.num_elements() == 0) return false;
  const LinearArgs product{.x = args.x,
                           .weight = args.weight,
                           .bias = args.bias,
                           .out = args.out,
                           .workspace = args.workspace,
                           .batch_invariant = args.batch_invariant,
                           .rounds_x = args.rounds_x,
                           .norm = args.norm};
  const GemmProblem problem = gemm_problem(product, /*gated=*/true);
  const GemmRow& row = reported(choose(problem, gpu_facts(stream.device)), problem);
  if (row.kernel == GemmKernel::kGemmThenSilu || row.kernel == GemmKernel::kFp8 ||
      row.kernel == GemmKernel::kFp8Blocks)
    return false;
  launch(row, problem, product, stream);
  return true;
}

}  // namespace attend::kernels::cuda
