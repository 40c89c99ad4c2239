#include "attend/bench/model/recurrent_layers.h"

#include <array>
#include <optional>
#include <variant>

#include "attend/bench/model/kernel_inputs.h"
#include "attend/bench/timing.h"
#include "attend/kernels/recurrent/recurrent.h"
#include "attend/tensor/cuda.h"

namespace attend::bench {
namespace {

class RecurrentTimer {
 public:
  RecurrentTimer(DType dtype, int num_tokens, Stream& stream)
      : dtype_(dtype), num_tokens_(num_tokens), stream_(stream) {}

  // Time of the convolutions, recurrences and gated norms of layers with a recurrent state.
  double total_us(const ModelSpec& spec) {
    std::optional<double> delta_us, mamba_us, conv_us;
    double total = 0.0;
    for (const LayerSpec& layer : spec.layers) {
      if (const auto* const delta = std::get_if<GatedDeltaSpec>(&layer.mixer)) {
        if (!delta_us) delta_us = gated_delta_us(*delta);
        total += *delta_us;
      } else if (const auto* const conv = std::get_if<ShortConvSpec>(&layer.mixer)) {
        if (!conv_us) conv_us = convolution_us(spec.hidden_size, conv->kernel, /*silu=*/false);
        total += *conv_us;
      } else if (const auto* const both = std::get_if<AttentionMamba2Spec>(&layer.mixer)) {
        if (!mamba_us) mamba_us = mamba2_us(both->mamba);
        total += *mamba_us;
      } else if (const auto* const mamba = std::get_if<Mamba2Spec>(&layer.mixer)) {
        if (!mamba_us) mamba_us = mamba2_us(*mamba);
        total += *mamba_us;
      }
    }
    return total;
  }

 private:
  Tensor random(std::initializer_list<int64_t> shape, DType dtype, float deviation) {
    return random_input(shape, dtype, deviation, stream_);
  }

  // Arrays of one request without a state before its tokens. Its state slot is 1.
  struct RecurrentArrays {
    Tensor rows, seqlen_kv, cu_seqlen_q;

    kernels::RecurrentBatch batch() const {
      return {.rows = rows.span<int32_t>(),
              .seqlen_kv = seqlen_kv.span<int32_t>(),
              .cu_seqlen_q = cu_seqlen_q.span<int32_t>()};
    }
  };
  static constexpr int64_t kStateSlots = 2;

  RecurrentArrays one_request() {
    return {.rows = upload_input({1}, stream_.device),
            .seqlen_kv = upload_input({num_tokens_}, stream_.device),
            .cu_seqlen_q = upload_input({0, num_tokens_}, stream_.device)};
  }

  double convolution_us(int64_t channels, int kernel, bool silu) {
    const Tensor x = random({num_tokens_, 1, channels}, dtype_, 1.0f),
                 weight = random({channels, kernel}, DType::kF32, 1.0f),
                 state = random({kStateSlots, kernel - 1, channels}, dtype_, 1.0f),
                 out = cuda::empty({num_tokens_, channels}, dtype_, stream_.device);
    const RecurrentArrays arrays = one_request();
    const std::array<TensorView, 1> inputs = {x.view()};
    const kernels::CausalConvArgs args{.inputs = inputs,
                                       .weight = weight,
                                       .bias = {},
                                       .silu = silu,
                                       .state = state,
                                       .out = out,
                                       .batch = arrays.batch()};
    return time_graph(stream_, kCallsPerGraph, [&](int) { kernels::causal_conv(args, stream_); });
  }

  double gated_delta_us(const GatedDeltaSpec& spec) {
    const int64_t ratio = spec.num_v_heads / spec.num_k_heads;
    const Tensor q = random({num_tokens_, spec.num_k_heads, spec.head_dim_k}, dtype_, 1.0f),
                 k = random({num_tokens_, spec.num_k_heads, spec.head_dim_k}, dtype_, 1.0f),
                 v = random({num_tokens_, spec.num_v_heads, spec.head_dim_v}, dtype_, 1.0f),
                 gate = random({num_tokens_, spec.num_v_heads, spec.head_dim_v}, dtype_, 1.0f),
                 alpha = spec.decays_per_channel
                             ? random({num_tokens_, spec.num_v_heads, spec.head_dim_k}, dtype_, 1.0f)
                             : random({num_tokens_, spec.num_k_heads, ratio}, dtype_, 1.0f),
                 beta = random({num_tokens_, spec.num_k_heads, ratio}, dtype_, 1.0f),
                 a_log = random({spec.num_v_heads}, DType::kF32, 1.0f),
                 dt_bias = spec.decays_per_channel
                               ? random({spec.num_v_heads, spec.head_dim_k}, DType::kF32, 1.0f)
                               : random({spec.num_v_heads}, DType::kF32, 1.0f),
                 weight = random({spec.head_dim_v}, DType::kF32, 1.0f),
                 state = random({kStateSlots, spec.num_v_heads, spec.head_dim_v, spec.head_dim_k},
                                DType::kF32, 1.0f),
                 out = cuda::empty({num_tokens_, spec.num_v_heads, spec.head_dim_v}, dtype_, stream_.device);
    const int64_t width = kernels::gated_delta_workspace_width(
        spec.num_v_heads, spec.head_dim_k, spec.decays_per_channel, dtype_, stream_.device);
    const Tensor workspace = cuda::empty({num_tokens_, width}, dtype_, stream_.device);
    const RecurrentArrays arrays = one_request();
    const kernels::GatedDeltaArgs args{.q = q,
                                       .k = k,
                                       .v = v,
                                       .alpha = alpha,
                                       .beta = beta,
                                       .a_log = a_log,
                                       .dt_bias = dt_bias,
                                       .state = state,
                                       .out = out,
                                       .batch = arrays.batch(),
                                       .workspace = width > 0 ? workspace.view() : TensorView{}};
    const double rule_us = time_graph(stream_, kCallsPerGraph, [&](int) {
      kernels::gated_delta_rule(args, stream_);
      kernels::gated_norm({.x = out, .weight = weight, .gate = gate}, stream_);
    });
    return rule_us + convolution_us(spec.conv_channels(), spec.conv_kernel, /*silu=*/true);
  }

  double mamba2_us(const Mamba2Spec& spec) {
    const Tensor x = random({num_tokens_, spec.num_heads, spec.head_dim}, dtype_, 1.0f),
                 b = random({num_tokens_, spec.num_groups, spec.state_dim}, dtype_, 1.0f),
                 c = random({num_tokens_, spec.num_groups, spec.state_dim}, dtype_, 1.0f),
                 dt = random({num_tokens_, spec.num_heads}, dtype_, 1.0f),
                 a_log = random({spec.num_heads}, DType::kF32, 1.0f),
                 d = random({spec.num_heads}, DType::kF32, 1.0f),
                 dt_bias = random({spec.num_heads}, DType::kF32, 1.0f),
                 gate = random({num_tokens_, spec.features()}, dtype_, 1.0f),
                 weight = random({spec.features()}, DType::kF32, 1.0f),
                 state =
                     random({kStateSlots, spec.num_heads, spec.head_dim, spec.state_dim}, DType::kF32, 1.0f),
                 out = cuda::empty({num_tokens_, spec.num_heads, spec.head_dim}, dtype_, stream_.device);
    const TensorView features =
        TensorView::contiguous(out.view().data, dtype_, {num_tokens_, spec.features()}, stream_.device);
    const RecurrentArrays arrays = one_request();
    const kernels::SelectiveScanArgs args{.x = x,
                                          .b = b,
                                          .c = c,
                                          .dt = dt,
                                          .a_log = a_log,
                                          .d = d,
                                          .dt_bias = dt_bias,
                                          .min_step = spec.min_step,
                                          .max_step = spec.max_step,
                                          .state = state,
                                          .out = out,
                                          .batch = arrays.batch()};
    const double scan_us = time_graph(stream_, kCallsPerGraph, [&](int) {
      kernels::selective_scan(args, stream_);
      kernels::grouped_gated_norm({.x = features,
                                   .gate = gate,
                                   .weight = weight,
                                   .num_groups = spec.num_groups,
                                   .order = spec.gate_order},
                                  stream_);
    });
    return scan_us + convolution_us(spec.conv_channels(), spec.conv_kernel, /*silu=*/true);
  }

  DType dtype_;
  int num_tokens_;
  Stream& stream_;
};

}  // namespace

double time_recurrent_layers(const ModelSpec& spec, DType dtype, int num_tokens, Stream& stream) {
  return RecurrentTimer(dtype, num_tokens, stream).total_us(spec);
}

}  // namespace attend::bench
