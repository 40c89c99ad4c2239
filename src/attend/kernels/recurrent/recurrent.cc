// Checks, and calls of the devices.
#include "attend/kernels/recurrent/cpu/recurrent.h"

#include <string_view>
#include <utility>

#include "attend/base/error.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/recurrent/cuda/common/delta_chunk_layout.h"
#include "attend/kernels/recurrent/cuda/recurrent.h"
#include "attend/kernels/recurrent/recurrent.h"

namespace attend::kernels {
namespace {

void require_contiguous_f32(std::string_view name, const TensorView& view, const Stream& stream) {
  require_dtype(name, view, DType::kF32);
  require_on(stream, name, view);
  require(view.is_contiguous(), name, " ", view, ": expected a contiguous tensor");
}

void require_slots(std::string_view name, View<const int32_t> slots, int64_t num_slots) {
  for (size_t i = 0; i < slots.size(); ++i)
    require(slots[i] >= 0 && slots[i] < num_slots, name, "[", i, "] ", slots[i], ": expected 0 to ",
            num_slots - 1, ", the slots of the state");
}

}  // namespace

void check(const RecurrentBatch& batch, int64_t num_tokens, int64_t num_slots, const Stream& stream) {
  const int64_t num_reqs = batch.num_reqs();
  require(std::ssize(batch.seqlen_kv) == num_reqs, "seqlen_kv of ", batch.seqlen_kv.size(),
          " requests: expected ", num_reqs);
  require(std::ssize(batch.cu_seqlen_q) == num_reqs + 1, "cu_seqlen_q of ", batch.cu_seqlen_q.size(),
          " entries: expected ", num_reqs + 1);
  require(batch.load_slots.empty() || std::ssize(batch.load_slots) == num_reqs, "load_slots of ",
          batch.load_slots.size(), " requests: expected ", num_reqs);
  require(batch.save_slots.empty() || std::ssize(batch.save_slots) == num_tokens, "save_slots of ",
          batch.save_slots.size(), " tokens: expected ", num_tokens);
  if (stream.device.type != DeviceType::kCpu) return;
  require_slots("rows", batch.rows, num_slots);
  require_slots("load_slots", batch.load_slots, num_slots);
  require_slots("save_slots", batch.save_slots, num_slots);
  require(batch.cu_seqlen_q.front() == 0 && batch.cu_seqlen_q.back() <= num_tokens, "cu_seqlen_q from ",
          batch.cu_seqlen_q.front(), " to ", batch.cu_seqlen_q.back(), ": expected 0 to at most ", num_tokens,
          ", the number of tokens");
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    const int32_t seqlen_q = batch.cu_seqlen_q[r + 1] - batch.cu_seqlen_q[r];
    require(seqlen_q >= 0 && seqlen_q <= batch.seqlen_kv[r], "request ", r, " with ", seqlen_q,
            " new tokens: expected 0 to ", batch.seqlen_kv[r], ", its seqlen_kv");
  }
}

void check(const CausalConvArgs& args, const Stream& stream) {
  require(!args.inputs.empty() && args.inputs.size() <= kMaxConvInputs, "inputs: ", args.inputs.size(),
          ", expected 1 to ", kMaxConvInputs);
  require_rank("out", args.out, 2);
  require_activation_on(stream, "out", args.out);
  int64_t channels = 0;
  for (const TensorView& input : args.inputs) {
    require_rank("inputs", input, 3);
    require_shape("inputs", input, {args.out.shape[0], input.shape[1], input.shape[2]});
    require_activation_on(stream, "inputs", input);
    channels += input.shape[1] * input.shape[2];
  }
  require_shape("out", args.out, {args.out.shape[0], channels});
  require_rank("weight", args.weight, 2);
  const int64_t kernel = args.weight.shape[1];
  require(kernel >= 2 && kernel <= kMaxConvKernel, "weight ", args.weight, ": expected 2 to ", kMaxConvKernel,
          " taps");
  require_shape("weight", args.weight, {channels, kernel});
  require_contiguous_f32("weight", args.weight, stream);
  if (!args.bias.empty()) {
    require_shape("bias", args.bias, {channels});
    require_contiguous_f32("bias", args.bias, stream);
  }
  require_rank("state", args.state, 3);
  require_shape("state", args.state, {args.state.shape[0], kernel - 1, channels});
  require_dtype("state", args.state, args.out.dtype);
  require_on(stream, "state", args.state);
  require(args.state.is_contiguous(), "state ", args.state, ": expected a contiguous tensor");
  check(args.batch, args.out.shape[0], args.state.shape[0], stream);
}

void causal_conv(const CausalConvArgs& args, Stream& stream) {
  check(args, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::causal_conv(args, stream);
  cpu::causal_conv(args, cpu::detect_isa());
}

void check(const GatedDeltaArgs& args, const Stream& stream) {
  require_rank("k", args.k, 3);
  require_rank("v", args.v, 3);
  const int64_t num_tokens = args.k.shape[0], num_k_heads = args.k.shape[1], head_dim_k = args.k.shape[2];
  const int64_t num_v_heads = args.v.shape[1], head_dim_v = args.v.shape[2];
  require(num_k_heads >= 1 && num_v_heads >= 1 && num_v_heads % num_k_heads == 0, "v ", args.v,
          ": expected a number of heads that is a multiple of ", num_k_heads, ", the heads of k");
  if (head_dim_k > kMaxDeltaHeadDim)
    fail(ErrorCode::kUnsupported, "k ", args.k, ": expected heads of at most ", kMaxDeltaHeadDim);
  const int64_t ratio = num_v_heads / num_k_heads;
  require_shape("q", args.q, {num_tokens, num_k_heads, head_dim_k});
  require_shape("v", args.v, {num_tokens, num_v_heads, head_dim_v});
  require_shape("out", args.out, {num_tokens, num_v_heads, head_dim_v});
  const bool per_channel = args.decays_per_channel();
  if (per_channel)
    require_shape("alpha", args.alpha, {num_tokens, num_v_heads, head_dim_k});
  else
    require_shape("alpha", args.alpha, {num_tokens, num_k_heads, ratio});
  require_shape("beta", args.beta, {num_tokens, num_k_heads, ratio});
  for (const auto& [name, view] : {std::pair<std::string_view, const TensorView*>{"q", &args.q},
                                   {"k", &args.k},
                                   {"v", &args.v},
                                   {"out", &args.out},
                                   {"alpha", &args.alpha},
                                   {"beta", &args.beta}})
    require_activation_on(stream, name, *view);
  require_shape("a_log", args.a_log, {num_v_heads});
  if (per_channel)
    require_shape("dt_bias", args.dt_bias, {num_v_heads, head_dim_k});
  else
    require_shape("dt_bias", args.dt_bias, {num_v_heads});
  require_contiguous_f32("a_log", args.a_log, stream);
  require_contiguous_f32("dt_bias", args.dt_bias, stream);
  require(args.beta_scale > 0.0f, "beta_scale ", args.beta_scale, ": expected above 0");
  require(args.lower_bound <= 0.0f, "lower_bound ", args.lower_bound, ": expected 0 or less");
  require_rank("state", args.state, 4);
  require_shape("state", args.state, {args.state.shape[0], num_v_heads, head_dim_v, head_dim_k});
  require_contiguous_f32("state", args.state, stream);
  if (!args.workspace.empty()) {
    require_rank("workspace", args.workspace, 2);
    require_dtype("workspace", args.workspace, args.out.dtype);
    require_on(stream, "workspace", args.workspace);
    const int64_t width =
        gated_delta_workspace_width(num_v_heads, head_dim_k, per_channel, args.out.dtype, stream.device);
    require(args.workspace.is_contiguous() && args.workspace.shape[0] >= num_tokens &&
                args.workspace.shape[1] >= width,
            "workspace ", args.workspace, ": expected a contiguous tensor of at least [", num_tokens, ", ",
            width, "]");
  }
  check(args.batch, num_tokens, args.state.shape[0], stream);
}

int64_t gated_delta_workspace_width(int64_t num_v_heads, int64_t head_dim_k, bool decays_per_channel,
                                    DType dtype, const Device& device) {
  if (device.type != DeviceType::kCuda || size_of(dtype) != 2 || head_dim_k > kMaxDeltaHeadDim) return 0;
  const int64_t slot_bytes = cuda::delta_slot_bytes(static_cast<int>(head_dim_k), decays_per_channel);
  return num_v_heads * slot_bytes / cuda::kDeltaTokensPerSlot / static_cast<int64_t>(size_of(dtype));
}

void gated_delta_rule(const GatedDeltaArgs& args, Stream& stream) {
  check(args, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::gated_delta_rule(args, stream);
  cpu::gated_delta_rule(args, cpu::detect_isa());
}

bool delta_token(const DeltaTokenArgs& args, Stream& stream) {
  check(args.conv, stream);
  check(args.delta, stream);
  check(args.norm, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::delta_token(args, stream);
  return false;
}

void check(const SelectiveScanArgs& args, const Stream& stream) {
  require_rank("x", args.x, 3);
  require_rank("b", args.b, 3);
  const int64_t num_tokens = args.x.shape[0], num_heads = args.x.shape[1], head_dim = args.x.shape[2];
  const int64_t num_groups = args.b.shape[1], state_dim = args.b.shape[2];
  require(num_groups >= 1 && num_heads >= 1 && num_heads % num_groups == 0, "x ", args.x,
          ": expected a number of heads that is a multiple of ", num_groups, ", the groups of b");
  require_shape("b", args.b, {num_tokens, num_groups, state_dim});
  require_shape("c", args.c, {num_tokens, num_groups, state_dim});
  require(args.c.strides[0] == args.b.strides[0], "c ", args.c, ": expected the strides of b");
  require_shape("dt", args.dt, {num_tokens, num_heads});
  require_shape("out", args.out, {num_tokens, num_heads, head_dim});
  for (const auto& [name, view] : {std::pair<std::string_view, const TensorView*>{"x", &args.x},
                                   {"b", &args.b},
                                   {"c", &args.c},
                                   {"dt", &args.dt},
                                   {"out", &args.out}})
    require_activation_on(stream, name, *view);
  for (const auto& [name, view] : {std::pair<std::string_view, const TensorView*>{"a_log", &args.a_log},
                                   {"d", &args.d},
                                   {"dt_bias", &args.dt_bias}}) {
    require_shape(name, *view, {num_heads});
    require_contiguous_f32(name, *view, stream);
  }
  require(args.min_step >= 0.0f && args.max_step >= args.min_step, "min_step ", args.min_step,
          " and max_step ", args.max_step,
          ": expected 0 or more, and the second one not below the first one");
  require_rank("state", args.state, 4);
  require_shape("state", args.state, {args.state.shape[0], num_heads, head_dim, state_dim});
  require_contiguous_f32("state", args.state, stream);
  check(args.batch, num_tokens, args.state.shape[0], stream);
}

void selective_scan(const SelectiveScanArgs& args, Stream& stream) {
  check(args, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::selective_scan(args, stream);
  cpu::selective_scan(args, cpu::detect_isa());
}

void grouped_gated_norm(const GroupedGatedNormArgs& args, Stream& stream) {
  require_rank("x", args.x, 2);
  require_activation_on(stream, "x", args.x);
  require_shape("gate", args.gate, {args.x.shape[0], args.x.shape[1]});
  require_activation_on(stream, "gate", args.gate);
  if (args.order != GateOrder::kGateOnly) {
    require_shape("weight", args.weight, {args.x.shape[1]});
    require_weight("weight", args.weight);
    require_on(stream, "weight", args.weight);
  }
  require(args.num_groups >= 1 && args.x.shape[1] % args.num_groups == 0, "num_groups ", args.num_groups,
          ": expected a divisor of ", args.x.shape[1], ", the features of x");
  if (const OnGpu gpu(stream); gpu) return cuda::grouped_gated_norm(args, stream);
  cpu::grouped_gated_norm(args, cpu::detect_isa());
}

void check(const GatedNormArgs& args, const Stream& stream) {
  require_rank("x", args.x, 3);
  require_activation_on(stream, "x", args.x);
  require_shape("weight", args.weight, {args.x.shape[2]});
  require_weight("weight", args.weight);
  require_on(stream, "weight", args.weight);
  require_rank("gate", args.gate, 3);
  require_activation_on(stream, "gate", args.gate);
  require(args.gate.shape[0] == args.x.shape[0] && args.gate.shape[2] % args.x.shape[2] == 0 &&
              args.gate.shape[1] * args.gate.shape[2] == args.x.shape[1] * args.x.shape[2],
          "gate ", args.gate, ": expected the heads of x ", args.x, " in groups");
}

void gated_norm(const GatedNormArgs& args, Stream& stream) {
  check(args, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::gated_norm(args, stream);
  cpu::gated_norm(args, cpu::detect_isa());
}

}  // namespace attend::kernels
