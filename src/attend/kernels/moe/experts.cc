#include "attend/kernels/moe/experts.h"

#include <string>
#include <utility>

#include "attend/base/error.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/gemm/weights.h"
#include "attend/kernels/moe/cpu/experts.h"
#include "attend/kernels/moe/cuda/moe.h"

namespace attend::kernels {
namespace {

constexpr uintptr_t kScratchAlignment = 64;

// `rows`: rows of one expert. `most`: maximum number of matrices per expert.
void check_weights(const std::string& name, std::span<const Linear> linears, const MoeShape& shape,
                   int64_t rows, int64_t columns, int64_t most, const Stream& stream) {
  const auto count = std::ssize(linears);
  const bool one_each = count == shape.num_experts || count == most * shape.num_experts;
  require(count == 1 || (one_each && stream.device.type == DeviceType::kCpu), name, ": ", count,
          " matrices of ", shape.num_experts, " experts: expected one, or on a CPU one per expert");
  for (const Linear& linear : linears) {
    const Weight& weight = linear.weight;
    const bool on_gpu = stream.device.type != DeviceType::kCpu;
    require_weight_on(stream, name, weight, on_gpu ? shape.num_experts : 1);
    const int64_t matrix_rows = rows * shape.num_experts / count;
    if (weight.format == WeightFormat::kPlain)
      require_shape(name, weight.data, {matrix_rows, columns});
    else
      require(weight.out_features() == matrix_rows && weight.in_features() == columns, name, " ", weight,
              ": expected [", matrix_rows, ", ", columns, "]");
    require(linear.bias.empty() == linears.front().bias.empty(), name,
            ": some matrices have a bias: expected all or none");
    if (linear.bias.empty()) continue;
    require_weight(name + "'s bias", linear.bias);
    require_on(stream, name + "'s bias", linear.bias);
    require_shape(name + "'s bias", linear.bias, {matrix_rows});
  }
}

void check_gate(const ExpertGate& gate) {
  if (gate.activation != ExpertActivation::kClampedSwiglu) return;
  require(gate.limit > 0.0f && gate.alpha > 0.0f, "clamped swiglu with limit ", gate.limit, " and alpha ",
          gate.alpha, ": expected both above 0");
}

void check_choices(const MoeExpertsArgs& args) {
  for (const int32_t expert : args.experts.span<const int32_t>())
    require(expert >= 0 && expert < args.shape.num_experts, "experts: ", expert, ": expected 0 to ",
            args.shape.num_experts - 1);
}

}  // namespace

void check(const MoeExpertsArgs& args, const Stream& stream) {
  const MoeShape& shape = args.shape;
  require(shape.num_experts >= 1 && shape.top_k >= 1 && shape.top_k <= shape.num_experts &&
              shape.intermediate_size >= 1 && shape.hidden_size >= 1,
          "experts: ", shape.top_k, " of ", shape.num_experts, ", ", shape.hidden_size, " features and ",
          shape.intermediate_size,
          " in each expert: expected at least 1 of each, and top_k up to the number of experts");
  require(shape.num_experts <= kMaxExperts, "experts: ", shape.num_experts, ": at most ", kMaxExperts);
  const int64_t num_tokens = args.x.shape[0];
  require_shape("x", args.x, {num_tokens, shape.hidden_size});
  require_shape("out", args.out, {num_tokens, shape.hidden_size});
  require_shape("experts", args.experts, {num_tokens, shape.top_k});
  require_shape("weights", args.weights, {num_tokens, shape.top_k});
  require_activation_on(stream, "x", args.x);
  require_activation_on(stream, "out", args.out);
  require_dtype("out", args.out, args.x.dtype);
  require_dtype("experts", args.experts, DType::kI32);
  require_dtype("weights", args.weights, DType::kF32);
  for (const auto& [name, view] :
       {std::pair{"x", &args.x}, {"out", &args.out}, {"experts", &args.experts}, {"weights", &args.weights}})
    require(view->is_contiguous(), name, " ", *view, ": expected a contiguous tensor");
  require_on(stream, "experts", args.experts);
  require_on(stream, "weights", args.weights);
  const int products = args.gate.num_products();
  check_weights("gate_up", args.linears.gate_up, shape, products * shape.intermediate_size, shape.hidden_size,
                products, stream);
  check_weights("down", args.linears.down, shape, shape.hidden_size, shape.intermediate_size, 1, stream);
  check_gate(args.gate);
  const size_t needed = experts_scratch_bytes(shape, num_tokens, args.x.dtype);
  require(args.scratch.size() >= needed, "scratch of ", args.scratch.size(), " bytes: ", num_tokens,
          " tokens need ", needed);
  require(reinterpret_cast<uintptr_t>(args.scratch.data()) % kScratchAlignment == 0, "scratch at ",
          static_cast<const void*>(args.scratch.data()), ": expected a multiple of ", kScratchAlignment);
  if (stream.device.type == DeviceType::kCpu) {
    if (args.accumulate)
      fail(ErrorCode::kUnsupported, "accumulate: moe_experts() on ", stream.device,
           " does not support it; cuda does");
    check_choices(args);
  }
}

bool adds_shared_expert(const MoeExpertsArgs& args, Stream& stream) {
  if (args.shared.empty() || args.x.shape[0] == 0) return false;
  if (const OnGpu gpu(stream); gpu) return cuda::adds_shared_expert(args, stream);
  return false;
}

void moe_experts(const MoeExpertsArgs& args, Stream& stream) {
  check(args, stream);
  ensure(args.shared.empty() || adds_shared_expert(args, stream),
         "experts: a shared expert, which the kernel does not add");
  if (args.x.shape[0] == 0) return;
  if (const OnGpu gpu(stream); gpu) return cuda::moe_experts(args, stream);
  cpu::moe_experts(args, cpu::detect_isa());
}

}  // namespace attend::kernels
