#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "attend/base/error.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/recurrent/cuda/common/delta_kernels.h"
#include "attend/kernels/recurrent/cuda/recurrent.h"
#include "attend/kernels/recurrent/cuda/sm80/delta_chunk_kernel.h"
#include "attend/kernels/recurrent/cuda/sm90/delta_chunk_scan_kernel.h"
#include "attend/kernels/recurrent/cuda/sm90/delta_token_kernel.h"

namespace attend::kernels::cuda {
namespace {

GateRows gate_rows(const TensorView& view) { return {view.data, view.strides[0], view.strides[1]}; }

DeltaParams delta_params(const GatedDeltaArgs& args) {
  const int64_t dim_k = args.k.shape[2];
  return {.q = token_rows(args.q),
          .k = token_rows(args.k),
          .v = token_rows(args.v),
          .out = out_rows(args.out),
          .alpha = gate_rows(args.alpha),
          .beta = gate_rows(args.beta),
          .a_log = args.a_log.as<const float>(),
          .dt_bias = args.dt_bias.as<const float>(),
          .state = args.state.as<float>(),
          .batch = step_batch(args.batch, args.out.shape[0]),
          .beta_scale = args.beta_scale,
          .q_scale = 1.0f / std::sqrt(static_cast<float>(dim_k)),
          .lower_bound = args.lower_bound,
          .num_v_heads = static_cast<int32_t>(args.v.shape[1]),
          .ratio = static_cast<int32_t>(args.beta.shape[2]),
          .dim_k = static_cast<int32_t>(dim_k),
          .dim_v = static_cast<int32_t>(args.v.shape[2]),
          .element = to_element_type(args.out.dtype),
          .aligned = dim_k % 4 == 0 && rows_aligned({&args.q, &args.k, &args.state}) &&
                     (!args.decays_per_channel() || rows_aligned({&args.alpha, &args.dt_bias})),
          .chunked = false,
          .decays_per_channel = args.decays_per_channel()};
}

GatedNormParams norm_params(const GatedNormArgs& args) {
  constexpr int64_t kNormGroup = 8;  // elements per aligned access
  const int64_t num_heads = args.x.shape[1], dim = args.x.shape[2];
  return {.x = device_rows(args.x),
          .gate = device_rows(args.gate),
          .weight = device_vector(args.weight),
          .eps = args.eps,
          .sigmoid = args.sigmoid,
          .num_rows = static_cast<int32_t>(args.x.shape[0] * num_heads),
          .num_heads = static_cast<int32_t>(num_heads),
          .heads_per_group = static_cast<int32_t>(args.gate.shape[2] / dim),
          .dim = static_cast<int32_t>(dim),
          .aligned = dim % kNormGroup == 0 && rows_aligned({&args.x, &args.gate}),
          .weight_aligned = dim % kNormGroup == 0 && rows_aligned({&args.weight})};
}

int max_shared_bytes() { return current_device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin); }

// Returns true if requests may have chunks, and the chunk form supports these tensors.
bool uses_chunks(const GatedDeltaArgs& args) {
  if (args.batch.batch_invariant || args.workspace.empty() || size_of(args.out.dtype) != 2) return false;
  // Every request has a token at least.
  const int64_t longest = args.out.shape[0] - args.batch.num_reqs() + 1;
  if (longest < kDeltaTokensPerSlot) return false;
  const int64_t dim_k = args.k.shape[2], dim_v = args.v.shape[2];
  const bool per_channel = args.decays_per_channel();
  // A slice of 32 rows also needs more memory than the other kernel.
  if (sm80::delta_scan_shared_bytes(static_cast<int>(dim_k), 32, per_channel) > max_shared_bytes())
    return false;
  if (dim_v % 16 != 0 || !rows_aligned({&args.q, &args.k, &args.v, &args.out, &args.workspace})) return false;
  if (per_channel) return (dim_k == 64 || dim_k == 128) && rows_aligned({&args.alpha});
  return args.beta.shape[2] <= sm80::kMaxDeltaRatio && (dim_k == 64 || dim_k == 96 || dim_k == 128);
}

// Scan with mma.sync. CTAs with many rows of the state are faster on an H200, also if they leave SMs idle.
void launch_scan(const DeltaChunkParams& chunks, void* stream) {
  const DeltaParams& params = chunks.delta;
  const bool per_channel = params.decays_per_channel, bf16 = params.element == Element::kBF16;
  int slice = 64;
  while (params.dim_v % slice != 0 ||
         sm80::delta_scan_shared_bytes(params.dim_k, slice, per_channel) > max_shared_bytes())
    slice /= 2;
  if (per_channel)
    return (bf16 ? sm80::launch_delta_channel_scan_bf16 : sm80::launch_delta_channel_scan_f16)(chunks, slice,
                                                                                               stream);
  (bf16 ? sm80::launch_delta_chunk_scan_bf16 : sm80::launch_delta_chunk_scan_f16)(chunks, slice, stream);
}

// Scan with wgmma, of 64 rows of the state per warpgroup. With more work than SMs, two warpgroups share the
// keys of a CTA, or two CTAs an SM.
void launch_hopper_scan(const DeltaChunkParams& chunks, void* stream) {
  const DeltaParams& params = chunks.delta;
  const bool shares_sms = params.num_v_heads * params.dim_v / 64 * params.batch.num_reqs > num_sms();
  const int slice = shares_sms && params.dim_v % 128 == 0 ? 128 : 64;
  const auto launch = params.element == Element::kBF16 ? sm90::launch_delta_chunk_scan_bf16
                                                       : sm90::launch_delta_chunk_scan_f16;
  launch(chunks, slice, shares_sms, stream);
}

void launch_chunks(const DeltaParams& params, const TensorView& workspace, Stream& stream) {
  const int num_tokens = params.batch.num_tokens;
  const DeltaChunkParams chunks{.delta = params,
                                .workspace = static_cast<char*>(workspace.data),
                                .num_slots = std::min(num_tokens / kDeltaTokensPerSlot,
                                                      num_tokens / kDeltaChunk + 2 * params.batch.num_reqs)};
  const bool bf16 = params.element == Element::kBF16;
  if (params.decays_per_channel) {
    (bf16 ? sm80::launch_delta_channel_matrices_bf16 : sm80::launch_delta_channel_matrices_f16)(
        chunks, stream.handle);
    return launch_scan(chunks, stream.handle);
  }
  (bf16 ? sm80::launch_delta_chunk_matrices_bf16 : sm80::launch_delta_chunk_matrices_f16)(chunks,
                                                                                          stream.handle);
  if (gpu_facts(stream.device).runs_sm90a() && params.dim_v % 64 == 0)
    return launch_hopper_scan(chunks, stream.handle);
  launch_scan(chunks, stream.handle);
}

}  // namespace

void gated_delta_rule(const GatedDeltaArgs& args, Stream& stream) {
  for (const auto& [name, view] : {std::pair<std::string_view, const TensorView*>{"q", &args.q},
                                   {"k", &args.k},
                                   {"v", &args.v},
                                   {"alpha", &args.alpha},
                                   {"beta", &args.beta}})
    require_dtype(name, *view, args.out.dtype);
  DeltaParams params = delta_params(args);
  params.chunked = uses_chunks(args);
  launch_delta_step(params, stream.handle);
  if (params.chunked) launch_chunks(params, args.workspace, stream);
}

void gated_norm(const GatedNormArgs& args, Stream& stream) {
  launch_gated_norm(norm_params(args), stream.handle);
}

bool delta_token(const DeltaTokenArgs& args, Stream& stream) {
  const GatedDeltaArgs& delta = args.delta;
  const CausalConvArgs& conv = args.conv;
  constexpr int64_t kDim = sm90::kDeltaTokenDim;
  const bool has_groups =
      std::ranges::all_of(conv.inputs, [](const TensorView& input) { return input.shape[2] % 4 == 0; });
  const bool fits = gpu_facts(stream.device).runs_sm90a() && size_of(delta.out.dtype) == 2 &&
                    delta.batch.num_reqs() <= sm90::kMaxDeltaTokenRequests && !delta.decays_per_channel() &&
                    delta.k.shape[2] == kDim && delta.v.shape[2] == kDim &&
                    delta.beta.shape[2] <= sm90::kMaxDeltaTokenRatio && conv.inputs.size() == 3 &&
                    conv.weight.shape[1] == sm90::kDeltaTokenTaps && conv.bias.empty() && conv.silu &&
                    has_groups && args.norm.x.dtype == args.norm.gate.dtype &&
                    rows_aligned({&conv.inputs[0], &conv.inputs[1], &conv.inputs[2], &conv.weight,
                                  &conv.state, &delta.state, &delta.out, &args.norm.gate});
  if (!fits) return false;
  if (delta.batch.num_reqs() == 0) return true;
  const sm90::DeltaTokenParams params{
      .conv = causal_conv_params(conv), .delta = delta_params(delta), .norm = norm_params(args.norm)};
  const auto launch =
      delta.out.dtype == DType::kBF16 ? sm90::launch_delta_token_bf16 : sm90::launch_delta_token_f16;
  launch(params, stream.handle);
  return true;
}

}  // namespace attend::kernels::cuda
