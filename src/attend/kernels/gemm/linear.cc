#include "attend/kernels/gemm/linear.h"

#include <string>
#include <utility>

#include "attend/base/error.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/gemm/cpu/linear.h"
#include "attend/kernels/gemm/cuda/linear.h"
#include "attend/kernels/gemm/cuda/quantized_workspace.h"
#include "attend/kernels/gemm/weights.h"
#include "attend/kernels/norm_rope/cpu/elementwise.h"
#include "attend/kernels/norm_rope/elementwise.h"

namespace attend::kernels {
namespace {

constexpr uintptr_t kWorkspaceAlignment = 64;

// `name`: argument name of the norm.
void check_norm(const std::string& name, const InputNorm& norm, const TensorView& x, const Stream& stream) {
  if (norm.weight.empty()) return;
  require_shape(name + ".weight", norm.weight, {x.shape[1]});
  require_weight(name + ".weight", norm.weight);
  require_on(stream, name + ".weight", norm.weight);
  require_shape(name + ".normalized", norm.normalized, {x.shape[0], x.shape[1]});
  require_activation_on(stream, name + ".normalized", norm.normalized);
  require_dtype(name + ".normalized", norm.normalized, x.dtype);
  require(!norm.deferred || !norm.partial_squares.empty(), name,
          ": a deferred norm requires partial_squares");
  if (norm.partial_squares.empty()) return;
  require_shape(name + ".partial_squares", norm.partial_squares,
                {x.shape[0], x.shape[1] / kPartialSquaresWidth});
  require_dtype(name + ".partial_squares", norm.partial_squares, DType::kF32);
  require_activation_on(stream, name + ".partial_squares", norm.partial_squares);
}

// linear() for checked arguments.
bool multiply_checked(const LinearArgs& args, Stream& stream) {
  if (args.out.num_elements() == 0) return false;
  if (const OnGpu gpu(stream); gpu) return cuda::linear(args, stream);
  const cpu::Isa isa = cpu::detect_isa();
  LinearArgs normalized = args;
  if (!args.norm.weight.empty()) {
    cpu::rms_norm(args.x, args.norm.weight, args.norm.eps, args.norm.normalized, 0.0f, isa);
    normalized.x = args.norm.normalized;
    normalized.norm = {};
  }
  cpu::linear(normalized, isa);
  return false;
}

}  // namespace

void check(const LinearArgs& args, const Stream& stream) {
  require_rank("x", args.x, 2);
  const int64_t num_rows = args.x.shape[0], in_features = args.x.shape[1];
  require_rank("weight", args.weight.data, 2);
  const int64_t out_features = args.weight.out_features();
  if (args.weight.format == WeightFormat::kPlain)
    require_shape("weight", args.weight.data, {out_features, in_features});
  else
    require(args.weight.in_features() == in_features, "weight ", args.weight, ": expected ", in_features,
            " input features, as x ", args.x, " has");
  require(in_features >= 1, "x ", args.x, ": no input features");
  require_shape("out", args.out, {num_rows, out_features});
  require_activation_on(stream, "x", args.x);
  require_activation_on(stream, "out", args.out);
  // Tensor maps and cuBLASLt require rows that do not overlap.
  for (const auto& [name, rows] : {std::pair{"x", &args.x}, {"out", &args.out}})
    require(num_rows <= 1 || rows->strides[0] >= rows->shape[1], name, " ", *rows,
            ": expected rows that do not overlap, a stride of at least ", rows->shape[1], ", not ",
            rows->strides[0]);
  require(args.out.dtype == args.x.dtype || args.out.dtype == DType::kF32, "out ", args.out, ": expected ",
          args.x.dtype, ", the dtype of x, or float32");
  require_weight_on(stream, "weight", args.weight);
  const size_t needed = linear_workspace_bytes(num_rows, in_features, stream.device, args.weight.format);
  require(args.workspace.empty() || args.workspace.size() >= needed, "workspace of ", args.workspace.size(),
          " bytes: ", num_rows, " rows of ", in_features, " input features need ", needed, ", or none");
  require(reinterpret_cast<uintptr_t>(args.workspace.data()) % kWorkspaceAlignment == 0, "workspace at ",
          static_cast<const void*>(args.workspace.data()), ": expected a multiple of ", kWorkspaceAlignment);
  if (args.accumulate && stream.device.type != DeviceType::kCuda)
    fail(ErrorCode::kUnsupported, "accumulate: linear() on ", stream.device,
         " does not support it; cuda does");
  check_norm("norm", args.norm, args.x, stream);
  if (args.next_norm != nullptr) check_norm("next_norm", *args.next_norm, args.out, stream);
  if (args.bias.empty()) return;
  require_shape("bias", args.bias, {out_features});
  require_weight("bias", args.bias);
  require_on(stream, "bias", args.bias);
}

size_t linear_workspace_bytes(int64_t max_rows, int64_t max_in_features, const Device& device,
                              WeightFormat format) {
  if (device.type != DeviceType::kCpu)
    return format == WeightFormat::kPlain ? 0 : cuda::QuantizedWorkspace(max_in_features).total();
  return cpu::linear_workspace_bytes(max_rows, max_in_features, cpu::detect_isa(), format);
}

bool linear(const LinearArgs& args, Stream& stream) {
  check(args, stream);
  return multiply_checked(args, stream);
}

void linear(std::span<const LinearArgs> products, Stream& stream) {
  for (const LinearArgs& args : products) {
    check(args, stream);
    require(args.norm.weight.empty() && args.next_norm == nullptr,
            "norm: products of several weights have none");
  }
  if (OnGpu(stream)) {
    for (const LinearArgs& args : products) multiply_checked(args, stream);
    return;
  }
  if (!products.empty() && products.front().out.num_elements() > 0) cpu::linear(products, cpu::detect_isa());
}

bool cpu_rounds_x() { return cpu::detect_isa() == cpu::Isa::kAvx512Bf16; }

void gated_linear(const GatedLinearArgs& args, Stream& stream) {
  const LinearArgs both{.x = args.x,
                        .weight = args.weight,
                        .bias = args.bias,
                        .out = args.gate_up,
                        .workspace = args.workspace,
                        .batch_invariant = args.batch_invariant,
                        .rounds_x = args.rounds_x,
                        .norm = args.norm};
  check(both, stream);
  require(args.weight.out_features() % 2 == 0, "weight ", args.weight,
          ": expected equal numbers of gate and up rows");
  require_shape("out", args.out, {args.x.shape[0], args.weight.out_features() / 2});
  require_activation_on(stream, "out", args.out);
  if (args.out.num_elements() == 0) return;
  if (const OnGpu gpu(stream); gpu && cuda::gated_linear(args, stream)) return;
  multiply_checked(both, stream);
  silu_mul(args.gate_up, args.out, stream);
}

}  // namespace attend::kernels
