#include "attend/kernels/recurrent/cpu/recurrent.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/kernels/norm_rope/cpu/elementwise_kernels.h"
#include "attend/kernels/recurrent/cpu/recurrent_kernels.h"

namespace attend::kernels::cpu {
namespace {

// One request of a step.
struct StepRequest {
  int64_t begin = 0, end = 0;  // its tokens
  int64_t row = 0, load = 0;   // state slots; row 0: padding
  bool from_zero = false;
};

StepRequest step_request(const RecurrentBatch& batch, int64_t request_idx) {
  const auto r = static_cast<size_t>(request_idx);
  const int64_t begin = batch.cu_seqlen_q[r], end = batch.cu_seqlen_q[r + 1], row = batch.rows[r];
  const int64_t load = batch.load_slots.empty() ? 0 : batch.load_slots[r];
  return {.begin = begin,
          .end = end,
          .row = row,
          .load = load == 0 ? row : load,
          .from_zero = batch.seqlen_kv[r] == end - begin};
}

int64_t save_slot(const RecurrentBatch& batch, int64_t token) {
  return batch.save_slots.empty() ? 0 : batch.save_slots[static_cast<size_t>(token)];
}

// Tokens after the last request are padding too.
void clear_padding(const RecurrentBatch& batch, const TensorView& out) {
  const auto clear = [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const TensorView row = out[token];
      if (row.rank == 1) {
        std::fill_n(row.as<float>(), row.shape[0], 0.0f);
        continue;
      }
      for (int64_t head = 0; head < row.shape[0]; ++head)
        std::fill_n(row[head].as<float>(), row.shape[1], 0.0f);
    }
  };
  for (int64_t r = 0; r < batch.num_reqs(); ++r)
    if (const StepRequest request = step_request(batch, r); request.row == 0)
      clear(request.begin, request.end);
  clear(batch.cu_seqlen_q.back(), out.shape[0]);
}

// Channels that one task convolves: adjacent in memory.
constexpr int64_t kChannels = 256;

struct ChannelBlock {
  const float* input;    // first channel of token 0
  int64_t token_stride;  // elements
  int64_t first;         // index of the first channel
  int64_t count;
};

int64_t num_blocks(const TensorView& input) { return input.shape[1] * ceil_div(input.shape[2], kChannels); }

ChannelBlock channel_block(std::span<const TensorView> inputs, int64_t block) {
  int64_t first = 0;
  size_t i = 0;
  for (; block >= num_blocks(inputs[i]); ++i) {
    block -= num_blocks(inputs[i]);
    first += inputs[i].shape[1] * inputs[i].shape[2];
  }
  const TensorView& input = inputs[i];
  const int64_t width = input.shape[2], blocks_per_group = ceil_div(width, kChannels);
  const int64_t group = block / blocks_per_group, begin = block % blocks_per_group * kChannels;
  return {.input = input.as<const float>() + group * input.strides[1] + begin,
          .token_stride = input.strides[0],
          .first = first + group * width + begin,
          .count = std::min(kChannels, width - begin)};
}

void convolve(const CausalConvArgs& args, const StepRequest& request, const ChannelBlock& block,
              const RecurrentKernels& kernels) {
  const int64_t taps = args.weight.shape[1], past = taps - 1, channels = args.state.shape[2];
  const int64_t n = block.count;
  std::array<float, kMaxConvKernel * kChannels> weights, window;
  const float* const by_channel = args.weight.as<const float>() + block.first * taps;
  for (int64_t j = 0; j < taps; ++j)
    for (int64_t c = 0; c < n; ++c) weights[static_cast<size_t>(j * n + c)] = by_channel[c * taps + j];
  const auto slot = [&](int64_t s) { return args.state.as<float>() + s * past * channels + block.first; };
  // The window before the step, which the new one overwrites.
  for (int64_t j = 0; j < past; ++j) {
    float* const to = window.data() + j * n;
    if (request.from_zero)
      std::fill_n(to, n, 0.0f);
    else
      std::copy_n(slot(request.load) + j * channels, n, to);
  }
  // Input `i` of the request, counted from the window's first one.
  const auto input = [&](int64_t i) {
    return i < past ? window.data() + i * n : block.input + (request.begin + i - past) * block.token_stride;
  };
  const auto write_window = [&](int64_t to_slot, int64_t num_tokens) {
    for (int64_t j = 0; j < past; ++j) std::copy_n(input(num_tokens + j), n, slot(to_slot) + j * channels);
  };
  const float* const bias = args.bias.empty() ? nullptr : args.bias.as<const float>() + block.first;
  for (int64_t t = 0; t < request.end - request.begin; ++t) {
    const float* x[kMaxConvKernel];
    for (int64_t j = 0; j < taps; ++j) x[j] = input(t + j);
    const int64_t token = request.begin + t;
    kernels.conv(x, weights.data(), bias, taps, args.silu,
                 args.out.as<float>() + token * args.out.strides[0] + block.first, n);
    if (const int64_t saved = save_slot(args.batch, token); saved != 0) write_window(saved, t + 1);
  }
  write_window(request.row, request.end - request.begin);
}

// Rows of a head's state that one task steps through all tokens of a request: half of an L1 cache.
constexpr int64_t kStateRows = 32;
// Tokens that are normalized at a time.
constexpr int64_t kTokens = 16;

float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// Element of alpha or beta for a token's value head.
float gate_input(const TensorView& gates, int64_t token, int64_t head) {
  const int64_t ratio = gates.shape[2];
  return gates.as<const float>()[token * gates.strides[0] + head / ratio * gates.strides[1] + head % ratio];
}

// Decay of a value head.
float head_decay(const GatedDeltaArgs& args, float rate, int64_t token, int64_t head) {
  const float x = gate_input(args.alpha, token, head) + args.dt_bias.as<const float>()[head];
  return std::exp(args.lower_bound < 0.0f ? args.lower_bound * sigmoid(rate * x) : -rate * softplus(x));
}

// Steps rows [first_row, first_row + num_rows) of a head of a selective scan through the tokens of a request.
void scan_head(const SelectiveScanArgs& args, const StepRequest& request, int64_t head, int64_t first_row,
               int64_t num_rows, const RecurrentKernels& kernels) {
  const int64_t dim = args.b.shape[2], group = head / (args.x.shape[1] / args.b.shape[1]);
  const auto state = [&](int64_t slot) {
    return args.state.as<float>() + slot * args.state.strides[0] + head * args.state.strides[1] +
           first_row * dim;
  };
  float* const own = state(request.row);
  if (request.from_zero)
    std::fill_n(own, num_rows * dim, 0.0f);
  else if (request.load != request.row)
    std::copy_n(state(request.load), num_rows * dim, own);
  const float rate = std::exp(args.a_log.as<const float>()[head]);
  std::array<float, kTokens> decay, steps;
  for (int64_t begin = request.begin, end = begin; begin < request.end; begin = end) {
    int64_t saved = 0;
    for (; end < request.end && end < begin + kTokens && saved == 0; ++end) {
      const float raw = args.dt.as<const float>()[end * args.dt.strides[0] + head];
      const float step =
          std::clamp(softplus(raw + args.dt_bias.as<const float>()[head]), args.min_step, args.max_step);
      steps[static_cast<size_t>(end - begin)] = step;
      decay[static_cast<size_t>(end - begin)] = std::exp(-rate * step);
      saved = save_slot(args.batch, end);
    }
    const auto rows_of = [&](const TensorView& view, int64_t index) {
      return view.as<float>() + begin * view.strides[0] + index * view.strides[1];
    };
    kernels.scan({.state = own,
                  .num_rows = num_rows,
                  .state_dim = dim,
                  .num_tokens = end - begin,
                  .b = rows_of(args.b, group),
                  .c = rows_of(args.c, group),
                  .decay = decay.data(),
                  .step = steps.data(),
                  .d = args.d.as<const float>()[head],
                  .x = rows_of(args.x, head) + first_row,
                  .out = rows_of(args.out, head) + first_row,
                  .bc_stride = args.b.strides[0],
                  .x_stride = args.x.strides[0],
                  .out_stride = args.out.strides[0]});
    if (saved != 0) std::copy_n(own, num_rows * dim, state(saved));
  }
}

// Steps rows [first_row, first_row + num_rows) of a value head through the tokens of a request.
void step_head(const GatedDeltaArgs& args, const StepRequest& request, int64_t head, int64_t first_row,
               int64_t num_rows, const RecurrentKernels& kernels) {
  const int64_t dim = args.k.shape[2], key_head = head / args.beta.shape[2];
  const auto state = [&](int64_t slot) {
    return args.state.as<float>() + slot * args.state.strides[0] + head * args.state.strides[1] +
           first_row * dim;
  };
  float* const own = state(request.row);
  if (request.from_zero)
    std::fill_n(own, num_rows * dim, 0.0f);
  else if (request.load != request.row)
    std::copy_n(state(request.load), num_rows * dim, own);
  std::array<float, kTokens * kMaxDeltaHeadDim> q, k, decay;
  std::array<float, kTokens> kq, beta;
  const bool per_channel = args.decays_per_channel();
  const float rate = std::exp(args.a_log.as<const float>()[head]);
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  const auto key_row = [&](const TensorView& view, int64_t token) {
    return view.as<const float>() + token * view.strides[0] + key_head * view.strides[1];
  };
  for (int64_t begin = request.begin, end = begin; begin < request.end; begin = end) {
    int64_t saved = 0;
    for (; end < request.end && end < begin + kTokens && saved == 0; ++end) {
      const auto i = static_cast<size_t>(end - begin);
      float* const query = q.data() + (end - begin) * dim;
      float* const key = k.data() + (end - begin) * dim;
      kernels.l2_norm(key_row(args.q, end), scale, query, dim);
      kernels.l2_norm(key_row(args.k, end), 1.0f, key, dim);
      kq[i] = kernels.dot(key, query, dim);
      beta[i] = args.beta_scale * sigmoid(gate_input(args.beta, end, head));
      if (per_channel)
        kernels.decay(
            args.alpha.as<const float>() + end * args.alpha.strides[0] + head * args.alpha.strides[1],
            args.dt_bias.as<const float>() + head * dim, rate, args.lower_bound,
            decay.data() + (end - begin) * dim, dim);
      else
        decay[i] = head_decay(args, rate, end, head);
      saved = save_slot(args.batch, end);
    }
    kernels.delta_rule(
        {.state = own,
         .num_rows = num_rows,
         .head_dim_k = dim,
         .num_tokens = end - begin,
         .q = q.data(),
         .k = k.data(),
         .kq = kq.data(),
         .decay = decay.data(),
         .decays_per_channel = per_channel,
         .beta = beta.data(),
         .v = args.v.as<const float>() + begin * args.v.strides[0] + head * args.v.strides[1] + first_row,
         .out = args.out.as<float>() + begin * args.out.strides[0] + head * args.out.strides[1] + first_row,
         .v_stride = args.v.strides[0],
         .out_stride = args.out.strides[0]});
    if (saved != 0) std::copy_n(own, num_rows * dim, state(saved));
  }
}

// Calls step(request, head, first_row, num_rows) for each block of state rows of each head and request.
template <class Step>
void for_each_state_block(const RecurrentBatch& batch, int64_t num_heads, int64_t num_rows,
                          const Step& step) {
  const int64_t blocks = ceil_div(num_rows, kStateRows);
  parallel_for(batch.num_reqs() * num_heads * blocks, [&](int64_t task, int) {
    const StepRequest request = step_request(batch, task / (num_heads * blocks));
    if (request.row == 0 || request.end == request.begin) return;
    const int64_t first_row = task % blocks * kStateRows;
    step(request, task / blocks % num_heads, first_row, std::min(kStateRows, num_rows - first_row));
  });
}

}  // namespace

RecurrentKernels recurrent_kernels(Isa isa) {
  require_isa(isa);
  if constexpr (kX86Kernels) {
    if (isa >= Isa::kAvx512) return recurrent_kernels_avx512();
    if (isa == Isa::kAvx2) return recurrent_kernels_avx2();
  }
  return recurrent_kernels_portable();
}

void causal_conv(const CausalConvArgs& args, Isa isa) {
  const RecurrentKernels kernels = recurrent_kernels(isa);
  clear_padding(args.batch, args.out);
  int64_t blocks = 0;
  for (const TensorView& input : args.inputs) blocks += num_blocks(input);
  parallel_for(args.batch.num_reqs() * blocks, [&](int64_t task, int) {
    const StepRequest request = step_request(args.batch, task / blocks);
    if (request.row != 0 && request.end > request.begin)
      convolve(args, request, channel_block(args.inputs, task % blocks), kernels);
  });
}

void gated_delta_rule(const GatedDeltaArgs& args, Isa isa) {
  const RecurrentKernels kernels = recurrent_kernels(isa);
  clear_padding(args.batch, args.out);
  for_each_state_block(args.batch, args.v.shape[1], args.v.shape[2],
                       [&](const StepRequest& request, int64_t head, int64_t first_row, int64_t num_rows) {
                         step_head(args, request, head, first_row, num_rows, kernels);
                       });
}

void selective_scan(const SelectiveScanArgs& args, Isa isa) {
  const RecurrentKernels kernels = recurrent_kernels(isa);
  clear_padding(args.batch, args.out);
  for_each_state_block(args.batch, args.x.shape[1], args.x.shape[2],
                       [&](const StepRequest& request, int64_t head, int64_t first_row, int64_t num_rows) {
                         scan_head(args, request, head, first_row, num_rows, kernels);
                       });
}

void grouped_gated_norm(const GroupedGatedNormArgs& args, Isa isa) {
  const RecurrentKernels kernels = recurrent_kernels(isa);
  const int64_t size = args.x.shape[1] / args.num_groups;
  const size_t weight_bytes = size_of(args.weight.dtype);
  const auto silu_mul = elementwise_kernels(isa).silu_mul;
  const auto normalize = args.order == GateOrder::kGateFirst ? kernels.normalize_gated : kernels.gated_norm;
  parallel_for_rows(args.x.shape[0] * args.num_groups, size, [&](int64_t row) {
    const int64_t token = row / args.num_groups, first = row % args.num_groups * size;
    float* const x = args.x.as<float>() + token * args.x.strides[0] + first;
    const float* const gate = args.gate.as<const float>() + token * args.gate.strides[0] + first;
    if (args.order == GateOrder::kGateOnly) return silu_mul(gate, x, x, size);
    const auto* const weights = static_cast<const std::byte*>(args.weight.data);
    normalize(x, weights + static_cast<size_t>(first) * weight_bytes, args.weight.dtype, args.eps, gate,
              size);
  });
}

void gated_norm(const GatedNormArgs& args, Isa isa) {
  const RecurrentKernels kernels = recurrent_kernels(isa);
  const int64_t num_heads = args.x.shape[1], dim = args.x.shape[2];
  const int64_t heads_per_group = args.gate.shape[2] / dim;
  const auto normalize = args.sigmoid ? kernels.sigmoid_gated_norm : kernels.gated_norm;
  parallel_for_rows(args.x.shape[0] * num_heads, dim, [&](int64_t row) {
    const int64_t token = row / num_heads, head = row % num_heads;
    const float* const gate = args.gate.as<const float>() + token * args.gate.strides[0] +
                              head / heads_per_group * args.gate.strides[1] + head % heads_per_group * dim;
    float* const x = args.x.as<float>() + token * args.x.strides[0] + head * args.x.strides[1];
    normalize(x, args.weight.data, args.weight.dtype, args.eps, gate, dim);
  });
}

}  // namespace attend::kernels::cpu
