#include <algorithm>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/kernels/fused/multiply_parts.h"
#include "attend/kernels/fused/operations.h"
#include "attend/kernels/fused/residual_access.h"
#include "attend/kernels/norm_rope/check_rows.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels {

namespace {

bool on_gpu(const OpContext& context) { return context.stream.device.type == DeviceType::kCuda; }

void gate(const NormGatedLinearArgs& args, Stream& stream) {
  const int64_t size = args.out.shape[1];
  scale(args.gate_up_out.slice(1, 0, size), args.gate_scale, stream);
  scale(args.gate_up_out.slice(1, size, 2 * size), args.up_scale, stream);
  const auto activate = args.activation == Activation::kSilu ? silu_mul : gelu_tanh_mul;
  activate(args.gate_up_out, args.out, stream);
}

}  // namespace

bool is_partial(const Weight& weight, const OpContext& context) {
  return context.ranks != nullptr && weight.shard == ShardAxis::kInFeatures;
}

namespace {

// multiply_parts() of one rank.
void multiply_own_parts(const TensorView& x, LinearParts linear, const TensorView& out,
                        const OpContext& context) {
  // A GPU multiplies by one part at a time anyway.
  const size_t max_products = on_gpu(context) ? 1 : kMaxLowRankProducts;
  int64_t first = 0;
  while (!linear.empty()) {
    LinearArgs products[kMaxLowRankProducts];
    LowRankProduct changed[kMaxLowRankProducts];
    const size_t count = std::min(linear.size(), max_products);
    for (size_t i = 0; i < count; ++i) {
      const int64_t end = first + linear[i].weight.out_features();
      products[i] = {.x = x,
                     .weight = linear[i].weight,
                     .bias = linear[i].bias,
                     .out = out.slice(1, first, end),
                     .workspace = context.workspace,
                     .batch_invariant = context.batch_invariant,
                     .rounds_x = context.rounds_x};
      changed[i] = {.adapter_index = linear[i].adapter_index, .out = products[i].out};
      first = end;
    }
    // The terms of ranks that divide the inputs are parts of the sum, too.
    const std::span<const LowRankProduct> sums(changed, count);
    shrink_low_rank({.x = x}, sums, context.adapters, context.stream);
    kernels::linear(std::span<const LinearArgs>(products, count), context.stream);
    expand_low_rank({.x = x}, sums, context.adapters, context.stream);
    linear = linear.subspan(count);
  }
}

}  // namespace

bool adapts(LinearParts linear, const OpContext& context) {
  const auto changes = [](const Linear& part) { return part.adapter_index >= 0; };
  return !context.adapters.empty() && std::ranges::any_of(linear, changes);
}

void multiply_parts(const TensorView& x, LinearParts linear, const TensorView& out,
                    const OpContext& context) {
  multiply_own_parts(x, linear, out, context);
  if (!linear.empty() && is_partial(linear.front().weight, context))
    context.ranks->all_reduce(out, context.stream);
}

void linear(const TensorView& x, const Linear& linear, const TensorView& out, const OpContext& context) {
  multiply_parts(x, {&linear, 1}, out, context);
}

namespace {

// Returns the rows of x, or x if `rows` is empty.
TensorView gathered(const Residual& residual, const TensorView& x, View<const int32_t> rows,
                    const OpContext& context) {
  if (rows.empty()) return x;
  const TensorView some = ResidualAccess::gathered(residual).slice(0, 0, std::ssize(rows));
  gather_rows(x, rows, some, context.stream);
  return some;
}

// norm_linear() on a GPU without the second half of the terms of adapters, which expand_low_rank() adds for
// the returned input.
LowRankInput start_norm_linear(Residual& residual, const NormLinearArgs& args, const OpContext& context) {
  const bool all = args.rows.empty();
  const Linear& one = args.linear.front();
  auto [x, norm] = ResidualAccess::gemm_input(residual, args.norm, context.stream);
  if (!all && !norm.weight.empty()) {
    // The norm of gathered rows is never deferred.
    norm.deferred = false;
    norm.partial_squares = {};
    norm.normalized = norm.normalized.slice(0, 0, std::ssize(args.rows));
  }
  if (adapts(args.linear, context)) {
    ensure(all, "adapters of a layer that reads some rows of the stream");
    // Adapters read x after the norm, or with a deferred one.
    if (!norm.weight.empty() && !norm.deferred) {
      rms_norm(x, norm.weight, norm.eps, norm.normalized, context.stream);
      x = norm.normalized;
      norm = {};
    }
  }
  const LowRankInput input{.x = x, .norm = norm};
  const LowRankProduct changed[] = {{.adapter_index = one.adapter_index, .out = args.out}};
  shrink_low_rank(input, changed, context.adapters, context.stream);
  kernels::linear({.x = gathered(residual, x, args.rows, context),
                   .weight = one.weight,
                   .bias = one.bias,
                   .out = args.out,
                   .workspace = context.workspace,
                   .batch_invariant = context.batch_invariant,
                   .rounds_x = context.rounds_x,
                   .norm = norm},
                  context.stream);
  return input;
}

}  // namespace

void norm_linear(Residual& residual, const NormLinearArgs& args, const OpContext& context) {
  if (!on_gpu(context) || args.linear.size() != 1) {
    const TensorView x = ResidualAccess::normalized(residual, args.norm, context.stream);
    return multiply_parts(gathered(residual, x, args.rows, context), args.linear, args.out, context);
  }
  const LowRankInput input = start_norm_linear(residual, args, context);
  const LowRankProduct changed[] = {{.adapter_index = args.linear.front().adapter_index, .out = args.out}};
  expand_low_rank(input, changed, context.adapters, context.stream);
}

void read(Residual& residual, const Norm& norm, const TensorView& out, const OpContext& context) {
  const TensorView& sum = ResidualAccess::sum(residual);
  if (norm.empty()) return copy_rows(sum, out, context.stream);
  apply_norm(norm, sum, out, context.stream);
}

void prepare(Residual& residual, const Norm& norm, const OpContext& context) {
  ResidualAccess::prepare(residual, norm, context.stream);
}

void norm_gated_linear(Residual& residual, const NormGatedLinearArgs& args, const OpContext& context) {
  if (!on_gpu(context) || args.gate_up.size() != 1) {
    const TensorView x = ResidualAccess::normalized(residual, args.norm, context.stream);
    multiply_parts(x, args.gate_up, args.gate_up_out, context);
    return gate(args, context.stream);
  }
  const Linear& one = args.gate_up.front();
  const NormLinearArgs product{.norm = args.norm, .linear = args.gate_up, .out = args.gate_up_out};
  if (args.activation != Activation::kSilu || args.gate_scale != 1.0f || args.up_scale != 1.0f) {
    norm_linear(residual, product, context);
    return gate(args, context.stream);
  }
  // gated_linear() does not write gate and up.
  if (adapts(args.gate_up, context)) {
    const LowRankInput input = start_norm_linear(residual, product, context);
    const LowRankProduct changed[] = {{.adapter_index = one.adapter_index, .out = args.gate_up_out}};
    if (expand_low_rank_silu_mul(input, changed[0], context.adapters, args.out, context.stream)) return;
    expand_low_rank(input, changed, context.adapters, context.stream);
    return gate(args, context.stream);
  }
  const auto [x, norm] = ResidualAccess::gemm_input(residual, args.norm, context.stream);
  gated_linear({.x = x,
                .weight = one.weight,
                .bias = one.bias,
                .gate_up = args.gate_up_out,
                .out = args.out,
                .workspace = context.workspace,
                .batch_invariant = context.batch_invariant,
                .rounds_x = context.rounds_x,
                .norm = norm},
               context.stream);
}

void norm_activated_linear(Residual& residual, const NormActivatedLinearArgs& args,
                           const OpContext& context) {
  norm_linear(residual, {.norm = args.norm, .linear = args.linear, .out = args.out}, context);
  if (args.activation == PlainActivation::kXielu) return xielu(args.out, args.alphas, context.stream);
  const auto activate = [&] {
    switch (args.activation) {
      case PlainActivation::kGelu:
        return gelu;
      case PlainActivation::kGeluTanh:
        return gelu_tanh;
      case PlainActivation::kRelu:
        return relu;
      case PlainActivation::kRelu2:
        return relu2;
      case PlainActivation::kSilu:
        return silu;
      case PlainActivation::kXielu:
        break;
    }
    fail(ErrorCode::kInternal, "unknown activation of an MLP without a gate");
  }();
  activate(args.out, context.stream);
}

void linear_add(const TensorView& x, const Linear& linear, Residual& residual, const OpContext& context,
                const Norm& post_norm) {
  const Linear parts[] = {linear};
  if (!on_gpu(context)) {
    const TensorView addend = ResidualAccess::leave_addend(residual);
    multiply_parts(x, parts, addend, context);
    if (!post_norm.empty()) apply_norm(post_norm, addend, addend, context.stream);
    return;
  }
  if (!post_norm.empty()) {
    const TensorView addend = ResidualAccess::free_scratch(residual);
    multiply_parts(x, parts, addend, context);
    return norm_add(addend, post_norm, residual, context);
  }
  if (is_partial(linear.weight, context)) {
    const TensorView partial = ResidualAccess::free_scratch(residual);
    multiply_own_parts(x, parts, partial, context);
    return ResidualAccess::all_reduce_add(partial, residual, context);
  }
  // Before the product, since the norm that it defers reads the complete sum. The product's kernel loads
  // weights meanwhile.
  const LowRankInput input{.x = x};
  const LowRankProduct changed[] = {{.adapter_index = linear.adapter_index, .out = residual.sum()}};
  shrink_low_rank(input, changed, context.adapters, context.stream);
  expand_low_rank(input, changed, context.adapters, context.stream);
  const bool deferred = kernels::linear({.x = x,
                                         .weight = linear.weight,
                                         .bias = linear.bias,
                                         .out = residual.sum(),
                                         .workspace = context.workspace,
                                         .batch_invariant = context.batch_invariant,
                                         .rounds_x = context.rounds_x,
                                         .accumulate = true,
                                         .next_norm = ResidualAccess::next_norm(residual)},
                                        context.stream);
  ResidualAccess::set_deferred(residual, deferred);
}

void norm_add(const TensorView& x, const Norm& norm, Residual& residual, const OpContext& context) {
  if (norm.empty()) return add_rows(residual, 0, x, context);
  if (on_gpu(context)) {
    ensure(norm.kind == NormKind::kRms, "norm_add: a GPU adds the result of an RMSNorm only");
    ResidualAccess::free_scratch(residual);
    return rms_norm_add(x, norm.weight, norm.eps, residual.sum(), context.stream);
  }
  apply_norm(norm, x, ResidualAccess::leave_addend(residual), context.stream);
}

void scale_residual(Residual& residual, const TensorView& factor, const OpContext& context) {
  scale(ResidualAccess::sum(residual), factor, context.stream);
}

void linear_add_norm(const TensorView& x, const Linear& linear, Residual& residual, const Norm& norm,
                     const OpContext& context) {
  // Two consecutive sums: the pending addend is added first.
  const TensorView sum = ResidualAccess::sum(residual);
  const TensorView addend = ResidualAccess::free_scratch(residual);
  const Linear parts[] = {linear};
  multiply_parts(x, parts, addend, context);
  add_layer_norm(addend, sum, norm.weight, norm.bias, norm.eps, context.stream);
}

void latent_linear(const TensorView& x, const Norm& norm, const Linear& linear, const TensorView& out,
                   const OpContext& context) {
  rms_norm(x, norm.weight, norm.eps, x, context.stream);
  multiply_parts(x, {&linear, 1}, out, context);
}

}  // namespace attend::kernels
