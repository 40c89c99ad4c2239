
#include "attend/base/error.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/fused/cuda/qkv.h"
#include "attend/kernels/fused/multiply_parts.h"
#include "attend/kernels/fused/operations.h"
#include "attend/kernels/fused/residual_access.h"
#include "attend/kernels/gemm/cuda/linear.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/norm_rope/rope.h"

namespace attend::kernels {

void qkv_norm_rope_store(const LinearArgs& product, const NormRopeArgs& rope, const StoreKvArgs& store,
                         Stream& stream) {
  require(rope.k.data == store.k.data, "qkv_norm_rope_store: expected the same k in rope and store");
  const OnGpu gpu(stream);
  if (!gpu) {
    linear(product, stream);
    return norm_rope_store(rope, store, stream);
  }
  check(product, stream);
  check(rope, stream);
  check(store);
  if (cuda::qkv_norm_rope_store(product, rope, store, stream)) return;
  if (product.out.num_elements() > 0) cuda::linear(product, stream);
  cuda::norm_rope_store(rope, store, stream);
}

namespace {

// Copies q, k and v to args.padded, stores K and V, and returns q.
TensorView store_padded(const NormQkvRopeStoreArgs& args, const NormRopeArgs& rope, Stream& stream) {
  int64_t begin = 0;
  const auto pad = [&](const TensorView& heads, int64_t num_heads, int64_t dim) {
    const int64_t end = begin + num_heads * dim;
    const TensorView padded = args.padded.slice(1, begin, end).split(1, dim);
    begin = end;
    copy_heads(heads, padded, stream);
    return padded;
  };
  const int64_t dim_k = args.to.k.shape[3];
  const TensorView q = pad(rope.q, args.num_q_heads, dim_k), k = pad(rope.k, args.num_kv_heads, dim_k);
  store_kv({.k = k, .v = pad(rope.v_out, args.num_kv_heads, args.to.v.shape[3]), .to = args.to}, stream);
  return q;
}

}  // namespace

TensorView norm_qkv_rope_store(Residual& residual, const NormQkvRopeStoreArgs& args,
                               const OpContext& context) {
  const int64_t head_dim = args.head_dim > 0 ? args.head_dim : args.to.k.shape[3];
  const int64_t q_features = args.q_gates ? 2 * head_dim : head_dim;
  const int64_t k_begin = args.num_q_heads * q_features, v_begin = k_begin + args.num_kv_heads * head_dim;
  const int64_t head_dim_v = args.head_dim_v > 0 ? args.head_dim_v : args.to.v.shape[3];
  const int64_t v_end = v_begin + args.num_kv_heads * head_dim_v;
  const auto heads = [&](int64_t begin, int64_t end) {
    return args.qkv_out.slice(1, begin, end).split(1, head_dim);
  };
  const bool layer_norms = args.qk_norm.layer_norms;
  const bool norms_heads = args.qk_norm.q.empty() || (args.qk_norm.q.shape[0] == head_dim && !layer_norms);
  require(norms_heads || !args.q_gates, "q_gates: expected norms of each head, or none");
  require(args.clip == 0.0f || args.qk_norm.q.empty() || !norms_heads, "clip ", args.clip,
          ": expected norms over all heads, or none");
  const TensorView q_rows = args.qkv_out.slice(1, 0, k_begin).split(1, q_features).slice(2, 0, head_dim);
  NormRopeArgs rope{.q = q_rows,
                    .k = heads(k_begin, v_begin),
                    .q_norm = norms_heads ? args.qk_norm.q : TensorView(),
                    .k_norm = norms_heads ? args.qk_norm.k : TensorView(),
                    .eps = args.qk_norm.eps,
                    .positions = args.rope.positions,
                    .cos = args.rope.cos,
                    .sin = args.rope.sin,
                    .interleaved = args.rope.interleaved,
                    .norm_after_rope = args.qk_norm.after_rope,
                    .norm_v = args.norm_v};
  // Only the values of q change, so this may follow the store.
  const auto apply_temperature = [&] {
    if (args.temperature.slope > 0.0f)
      scale_by_position(rope.q, args.positions, args.temperature, context.stream);
  };
  require(args.norm_v || !args.k_as_v, "k_as_v: expected norm_v");
  rope.v_out = args.qkv_out.slice(1, v_begin, v_end).split(1, head_dim_v);
  const StoreKvArgs store{.k = rope.k, .v = args.k_as_v ? rope.k : rope.v_out, .to = args.to};
  const TensorView product = args.k_as_v ? args.qkv_out.slice(1, 0, v_begin) : args.qkv_out;
  const bool pads = !args.padded.empty();
  require(!pads || !args.norm_v, "padded heads: expected no norm of v");
  if (!norms_heads || args.clip > 0.0f || pads) {
    norm_linear(residual, {.norm = args.norm, .linear = args.qkv, .out = product}, context);
    const auto norm_part = [&](int64_t begin, int64_t end, const TensorView& weight) {
      if (layer_norms)
        return layer_norm(heads(begin, end), weight, {}, args.qk_norm.eps, heads(begin, end), context.stream);
      const TensorView part = args.qkv_out.slice(1, begin, end);
      rms_norm(part, weight, args.qk_norm.eps, part, context.stream);
    };
    if (!norms_heads) {
      norm_part(0, k_begin, args.qk_norm.q);
      norm_part(k_begin, v_begin, args.qk_norm.k);
    }
    if (args.clip > 0.0f) clamp(args.qkv_out.slice(1, 0, v_end), args.clip, context.stream);
    if (pads) {
      norm_rope(rope, context.stream);
      apply_temperature();
      return store_padded(args, rope, context.stream);
    }
    norm_rope_store(rope, store, context.stream);
    apply_temperature();
    return rope.q;
  }
  // The fused kernel stores k and v, so that nothing can be added to them.
  if (context.stream.device.type == DeviceType::kCuda && args.qkv.size() == 1 && !adapts(args.qkv, context)) {
    const Linear& one = args.qkv.front();
    const auto [x, norm] = ResidualAccess::gemm_input(residual, args.norm, context.stream);
    qkv_norm_rope_store({.x = x,
                         .weight = one.weight,
                         .bias = one.bias,
                         .out = product,
                         .workspace = context.workspace,
                         .batch_invariant = context.batch_invariant,
                         .rounds_x = context.rounds_x,
                         .norm = norm},
                        rope, store, context.stream);
    apply_temperature();
    return rope.q;
  }
  norm_linear(residual, {.norm = args.norm, .linear = args.qkv, .out = product}, context);
  norm_rope_store(rope, store, context.stream);
  apply_temperature();
  return rope.q;
}

TensorView norm_q_rope(Residual& residual, const NormQRopeArgs& args, const OpContext& context) {
  norm_linear(residual, {.norm = args.norm, .linear = args.q, .out = args.q_out}, context);
  const TensorView q = args.q_out.split(1, args.head_dim);
  norm_rope({.q = q,
             .q_norm = args.q_norm,
             .eps = args.eps,
             .positions = args.rope.positions,
             .cos = args.rope.cos,
             .sin = args.rope.sin,
             .interleaved = args.rope.interleaved},
            context.stream);
  return q;
}

}  // namespace attend::kernels
