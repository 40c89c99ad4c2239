
#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/fused/multiply_parts.h"
#include "attend/kernels/fused/operations.h"
#include "attend/kernels/fused/residual_access.h"
#include "attend/kernels/moe/cpu/experts.h"
#include "attend/kernels/moe/cuda/moe.h"
#include "attend/kernels/moe/experts.h"
#include "attend/kernels/moe/scratch.h"
#include "attend/kernels/norm_rope/elementwise.h"

namespace attend::kernels {
namespace {

struct RouterScratch {
  TensorView logits, experts, weights;

  RouterScratch(const MoeShape& shape, int64_t num_tokens, ScratchPieces& pieces)
      : logits(pieces.take(DType::kF32, {num_tokens, shape.num_experts})),
        experts(pieces.take(DType::kI32, {num_tokens, shape.top_k})),
        weights(pieces.take(DType::kF32, {num_tokens, shape.top_k})) {}
};

// Returns the input of the experts.
TensorView normalize_and_route(Residual& residual, const MoeAddArgs& args, const RouterScratch& router,
                               const OpContext& context) {
  RouteArgs choice{.logits = router.logits,
                   .rule = args.rule,
                   .correction = args.correction,
                   .experts = router.experts,
                   .weights = router.weights};
  check(choice, context.stream);
  const OnGpu gpu(context.stream);
  if (gpu && !args.norm.weight.empty()) {
    const TensorView normalized = ResidualAccess::free_scratch(residual);
    if (norm_route({.x = residual.sum(),
                    .norm = args.norm.weight,
                    .norm_eps = args.norm.eps,
                    .router = args.router,
                    .rule = args.rule,
                    .correction = args.correction,
                    .normalized = normalized,
                    .experts = router.experts,
                    .weights = router.weights,
                    .batch_invariant = context.batch_invariant},
                   context.stream))
      return normalized;
  }
  const TensorView x = ResidualAccess::normalized(residual, args.norm, context.stream);
  const Linear parts[] = {args.router};
  multiply_parts(x, parts, router.logits, context);
  if (choice.experts.num_elements() == 0) return x;
  if (gpu)
    cuda::route(choice, context.stream);
  else
    cpu::route(choice);
  return x;
}

}  // namespace

// Pieces are constant or grow with the tokens, so the scratch per token is largest for one token. A feature
// is smallest in 16 bits, where 32-bit values need the most features.
int64_t moe_scratch_width(const MoeShape& shape) {
  ScratchPieces pieces;
  const RouterScratch router(shape, 1, pieces);
  const ExpertScratch experts(shape, 1, DType::kBF16, pieces);
  return static_cast<int64_t>(ceil_div(pieces.used_bytes(), size_of(DType::kBF16)));
}

void moe_add(Residual& residual, const MoeAddArgs& args, const OpContext& context) {
  const int64_t num_tokens = residual.num_tokens();
  const bool on_gpu = context.stream.device.type == DeviceType::kCuda;
  require_shape("scratch", args.scratch, {num_tokens, moe_scratch_width(args.shape)});
  require_dtype("scratch", args.scratch, residual.sum().dtype);
  require(args.scratch.is_contiguous(), "scratch ", args.scratch, ": expected a contiguous tensor");
  const View<std::byte> memory{static_cast<std::byte*>(args.scratch.data), args.scratch.num_bytes()};
  ScratchPieces pieces(memory, context.stream.device);
  const RouterScratch router(args.shape, num_tokens, pieces);

  const TensorView x = normalize_and_route(residual, args, router, context);
  const bool shares = !args.shared.gate_up.empty();
  if (shares) {
    if (args.gate.activation == ExpertActivation::kRelu2) {
      multiply_parts(x, args.shared.gate_up, args.shared.inner, context);
      relu2(args.shared.inner, context.stream);
    } else {
      multiply_parts(x, args.shared.gate_up, args.shared.gate_up_out, context);
      silu_mul(args.shared.gate_up_out, args.shared.inner, context.stream);
    }
    if (!args.shared.gate.weight.empty()) {
      const Linear gate[] = {args.shared.gate};
      multiply_parts(x, gate, args.shared.gate_out, context);
      scale_by_sigmoid(args.shared.gate_out, args.shared.inner, context.stream);
    }
  }
  const bool projects = !args.latents.in.weight.empty();
  if (projects) {
    const Linear in[] = {args.latents.in};
    multiply_parts(x, in, args.latents.rows, context);
  }
  // On a CPU the sum remains pending for the next norm, in the memory of x. Latent vectors are overwritten.
  const TensorView sum = projects ? args.latents.rows
                         : on_gpu ? residual.sum()
                                  : ResidualAccess::leave_addend(residual);
  moe_experts({.shape = args.shape,
               .x = projects ? args.latents.rows : x,
               .experts = router.experts,
               .weights = router.weights,
               .linears = args.experts,
               .gate = args.gate,
               .weights_scale_input = args.weights_scale_input,
               .out = sum,
               .accumulate = on_gpu && !projects,
               .scratch = memory.subspan(pieces.used_bytes()),
               .workspace = context.workspace,
               .batch_invariant = context.batch_invariant},
              context.stream);
  if (projects) linear_add(args.latents.rows, args.latents.out, residual, context);
  if (shares) linear_add(args.shared.inner, args.shared.down, residual, context);
}

}  // namespace attend::kernels
