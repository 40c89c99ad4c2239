
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

// Input of the experts.
struct Routed {
  TensorView x;
  bool has_gate = false;  // the product of the shared expert's gate was computed too
};
Routed normalize_and_route(Residual& residual, const MoeAddArgs& args, const RouterScratch& router,
                           const OpContext& context) {
  RouteArgs choice{.logits = router.logits,
                   .rule = args.rule,
                   .correction = args.correction,
                   .expert_scales = args.expert_scales,
                   .experts = router.experts,
                   .weights = router.weights};
  check(choice, context.stream);
  const OnGpu gpu(context.stream);
  const bool shares_norm = args.router_norm.empty();
  const bool has_rms_norm = !args.norm.empty() && args.norm.kind == NormKind::kRms;
  // A prepared norm is that of the stream before other sublayers added to it.
  const bool fits = has_rms_norm && shares_norm && !ResidualAccess::is_prepared(residual, args.norm);
  if (gpu && fits && args.expert_scales.empty() && args.rule.logit_cap == 0.0f) {
    const TensorView normalized = ResidualAccess::free_scratch(residual);
    if (norm_route({.x = residual.sum(),
                    .norm = args.norm.weight,
                    .norm_eps = args.norm.eps,
                    .router = args.router,
                    .rule = args.rule,
                    .correction = args.correction,
                    .shared_gate = args.shared.gate,
                    .shared_gate_out = args.shared.gate_out,
                    .normalized = normalized,
                    .experts = router.experts,
                    .weights = router.weights,
                    .batch_invariant = context.batch_invariant},
                   context.stream))
      return {.x = normalized, .has_gate = true};
  }
  const TensorView x =
      ResidualAccess::normalized(residual, shares_norm ? args.norm : args.router_norm, context.stream);
  const Linear parts[] = {args.router};
  multiply_parts(x, parts, router.logits, context);
  if (args.rule.logit_cap > 0.0f) soft_cap(router.logits, args.rule.logit_cap, context.stream);
  if (choice.experts.num_elements() > 0) {
    if (gpu)
      cuda::route(choice, context.stream);
    else
      cpu::route(choice);
  }
  return {.x = shares_norm ? x : ResidualAccess::normalized(residual, args.norm, context.stream)};
}

// Computes the product of the shared expert's gate, unless `routed` has it, and scales `inner` by its
// sigmoid, unless `inner` is empty.
void apply_shared_gate(const Routed& routed, const SharedExpert& shared, const TensorView& inner,
                       const OpContext& context) {
  if (shared.gate.weight.empty()) return;
  if (!routed.has_gate) {
    if (shared_gate({.x = routed.x, .gate = shared.gate, .out = shared.gate_out, .inner = inner},
                    context.stream))
      return;
    const Linear gate[] = {shared.gate};
    multiply_parts(routed.x, gate, shared.gate_out, context);
  }
  if (!inner.empty()) scale_by_gate(shared.gate_out, inner, context.stream);
}

// args.shared.inner = the shared expert's activations, times its gate.
void apply_shared_gate_up(const Routed& routed, const MoeAddArgs& args, const OpContext& context) {
  const TensorView& x = routed.x;
  const SharedExpert& shared = args.shared;
  if (args.gate.activation == ExpertActivation::kRelu2) {
    multiply_parts(x, shared.gate_up, shared.inner, context);
    relu2(shared.inner, context.stream);
  } else if (context.stream.device.type == DeviceType::kCuda && shared.gate_up.size() == 1) {
    const Linear& one = shared.gate_up.front();
    gated_linear({.x = x,
                  .weight = one.weight,
                  .bias = one.bias,
                  .gate_up = shared.gate_up_out,
                  .out = shared.inner,
                  .workspace = context.workspace,
                  .batch_invariant = context.batch_invariant,
                  .rounds_x = context.rounds_x},
                 context.stream);
  } else {
    multiply_parts(x, shared.gate_up, shared.gate_up_out, context);
    silu_mul(shared.gate_up_out, shared.inner, context.stream);
  }
  apply_shared_gate(routed, shared, shared.inner, context);
  scale(shared.inner, shared.scale, context.stream);
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

  const Routed routed = normalize_and_route(residual, args, router, context);
  const TensorView& x = routed.x;
  const bool projects = !args.latents.in.weight.empty();
  if (projects) {
    const Linear in[] = {args.latents.in};
    multiply_parts(x, in, args.latents.rows, context);
  }
  MoeExpertsArgs experts{.shape = args.shape,
                         .x = projects ? args.latents.rows : x,
                         .experts = router.experts,
                         .weights = router.weights,
                         .linears = args.experts,
                         .gate = args.gate,
                         .weights_scale_input = args.weights_scale_input,
                         .out = projects ? args.latents.rows : residual.sum(),
                         .accumulate = on_gpu && !projects,
                         .scratch = memory.subspan(pieces.used_bytes()),
                         .workspace = context.workspace,
                         .batch_invariant = context.batch_invariant,
                         .rounds_x = context.rounds_x};
  bool shares = !args.shared.gate_up.empty();
  const bool writes_out = !args.out.empty();
  require(!writes_out || (!projects && !shares), "out ", args.out,
          ": expected none with a shared expert or latent vectors");
  if (shares && !projects && args.shared.gate_up.size() == 1 && args.shared.scale == 1.0f) {
    experts.shared = {.gate_up = args.shared.gate_up.front(),
                      .down = args.shared.down,
                      .gate_out = args.shared.gate.weight.empty() ? TensorView() : args.shared.gate_out};
    if (adds_shared_expert(experts, context.stream)) {
      apply_shared_gate(routed, args.shared, /*inner=*/{}, context);
      shares = false;
    } else {
      experts.shared = {};
    }
  }
  if (shares) apply_shared_gate_up(routed, args, context);
  // On a CPU the sum remains pending for the next norm, in the memory of x. Latent vectors are overwritten.
  if (writes_out) {
    experts.out = args.out;
    experts.accumulate = false;
  } else if (!on_gpu && !projects) {
    experts.out = ResidualAccess::leave_addend(residual);
  }
  const bool partial = is_partial(args.experts.down.front().weight, context);
  if (partial && experts.accumulate) {
    // The scratch has x, which the experts read.
    const TensorView& gathered = ResidualAccess::gathered(residual);
    experts.out = x.data == gathered.data ? ResidualAccess::free_scratch(residual) : gathered;
    experts.accumulate = false;
  }
  moe_experts(experts, context.stream);
  if (partial && on_gpu && !writes_out && !projects) {
    // The shared expert's product is partial too: one sum of ranks for both.
    if (shares)
      kernels::linear({.x = args.shared.inner,
                       .weight = args.shared.down.weight,
                       .bias = args.shared.down.bias,
                       .out = experts.out,
                       .workspace = context.workspace,
                       .batch_invariant = context.batch_invariant,
                       .rounds_x = context.rounds_x,
                       .accumulate = true},
                      context.stream);
    shares = false;
    ResidualAccess::all_reduce_add(experts.out, residual, context);
  } else if (partial) {
    context.ranks->all_reduce(experts.out, context.stream);
  }
  if (projects) linear_add(args.latents.rows, args.latents.out, residual, context);
  if (shares) linear_add(args.shared.inner, args.shared.down, residual, context);
}

}  // namespace attend::kernels
