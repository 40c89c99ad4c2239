#include "attend/kernels/attention/attention.h"

#include <initializer_list>
#include <string_view>
#include <utility>

#include "attend/base/error.h"
#include "attend/kernels/attention/cpu/attention.h"
#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/attention/run.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/on_gpu.h"

namespace attend::kernels {
namespace {

struct HeadGeometry {
  int64_t num_q_heads = 0, num_kv_heads = 0, head_dim_v = 0;
};

// Throws Error(kInvalidArgument) unless `plan` was made for these heads, and planned for the same number of
// requests and for this mask, or for a mask without window and chunk, which includes all ranges.
void check_plan(std::string_view kernel, const AttentionPlan& plan, const QueryBatch& batch,
                const AttentionMask& attention_mask, const HeadGeometry& heads) {
  const AttentionPlanLimits& limits = plan.limits();
  require(heads.num_q_heads == limits.num_q_heads && heads.num_kv_heads == limits.num_kv_heads &&
              heads.head_dim_v == limits.head_dim_v,
          kernel, ": ", heads.num_q_heads, " query heads, ", heads.num_kv_heads, " KV heads, head_dim_v ",
          heads.head_dim_v, ": the plan was made for ", limits.num_q_heads, ", ", limits.num_kv_heads,
          " and ", limits.head_dim_v);
  const AttentionMask unrestricted{.causal = attention_mask.causal,
                                   .window_right = attention_mask.window_right};
  require(plan.attention_mask() == attention_mask || plan.attention_mask() == unrestricted, kernel,
          ": window_left ", attention_mask.window_left, ", chunk ", attention_mask.chunk, ", causal ",
          attention_mask.causal, ", window_right ", attention_mask.window_right, ": the plan was made for ",
          plan.attention_mask().window_left, ", ", plan.attention_mask().chunk, ", ",
          plan.attention_mask().causal, " and ", plan.attention_mask().window_right);
  require(batch.num_reqs() == plan.num_reqs(), kernel, ": ", batch.num_reqs(),
          " requests: the plan was made for ", plan.num_reqs());
}

// Tensors of a call on a GPU; omitted ones are empty.
void require_all_on(const Stream& stream,
                    std::initializer_list<std::pair<std::string_view, const TensorView*>> views) {
  for (const auto& [name, view] : views)
    if (!view->empty()) require_on(stream, name, *view);
}

bool has_descales(const AttentionArgs& args) {
  return args.q_scales.data != nullptr || args.k_scales.data != nullptr || args.v_scales.data != nullptr;
}

}  // namespace

void attention(const AttentionArgs& args, AttentionPlan& plan, Stream& stream) {
  check(args);
  check_plan(
      "attention", plan, args.batch, args.attention_mask,
      {.num_q_heads = args.q.shape[1], .num_kv_heads = args.kv.k.shape[2], .head_dim_v = args.kv.v.shape[3]});
  if (!args.new_keys.k.empty() && !stores_new_keys(args, plan))
    fail(ErrorCode::kUnsupported, "new_keys ", args.new_keys.k,
         ": supported only if stores_new_keys() returns true (attention)");
  if (has_descales(args) && args.q.dtype != DType::kF8E4M3 && !has_head_descales(args, plan))
    fail(ErrorCode::kUnsupported, "q_scales, k_scales, v_scales with q ", args.q, " over k ", args.kv.k,
         ": supported only if has_head_descales() returns true (attention)");
  if (stream.device.type == DeviceType::kCuda)
    require_all_on(
        stream,
        {{"q", &args.q}, {"k", &args.kv.k}, {"v", &args.kv.v}, {"out", &args.out}, {"lse", &args.lse}});
  run(args, plan, stream);
}

void run(const AttentionArgs& args, AttentionPlan& plan, Stream& stream) {
  if (const OnGpu gpu(stream); gpu) return cuda::attention(args, plan.device_plan(), stream);
  if (is_fp8(args.q.dtype))
    fail(ErrorCode::kUnsupported, "q ", args.q, ": on a CPU expected float32, float16 or bfloat16");
  cpu::attention(args, plan, cpu::attention_isa());
}

bool stores_new_keys(const AttentionArgs& args, const AttentionPlan& plan) {
  return args.q.device.type == DeviceType::kCuda && cuda::stores_new_keys(args, plan.device_plan());
}

bool has_head_descales(const AttentionArgs& args, const AttentionPlan& plan) {
  return args.q.device.type == DeviceType::kCuda && cuda::has_head_descales(args, plan.device_plan());
}

bool multiplies_e4m3(Device device, int64_t head_dim_qk, int64_t head_dim_v, int64_t num_rows) {
  return device.type == DeviceType::kCuda && cuda::multiplies_e4m3(device, head_dim_qk, head_dim_v, num_rows);
}

void mla(const MlaArgs& args, AttentionPlan& plan, Stream& stream) {
  check(args);
  check_plan("mla", plan, args.batch, args.attention_mask,
             {.num_q_heads = args.q.shape[1], .num_kv_heads = 1, .head_dim_v = args.q.shape[2]});
  if (stream.device.type == DeviceType::kCuda)
    require_all_on(stream, {{"q", &args.q},
                            {"q_rope", &args.q_rope},
                            {"latent", &args.latent},
                            {"out", &args.out},
                            {"lse", &args.lse}});
  run(args, plan, stream);
}

void run(const MlaArgs& args, AttentionPlan& plan, Stream& stream) {
  if (const OnGpu gpu(stream); gpu) return cuda::mla(args, plan.device_plan(), stream);
  cpu::mla(args, plan, cpu::attention_isa());
}

void merge(const MergeArgs& args, Stream& stream) {
  check(args);
  if (const OnGpu gpu(stream); gpu) {
    require_all_on(stream, {{"merge", &args.out_a},
                            {"merge", &args.out_b},
                            {"merge", &args.lse_a},
                            {"merge", &args.lse_b},
                            {"merge", &args.out},
                            {"merge", &args.lse}});
    return cuda::merge(args, stream);
  }
  cpu::merge(args, cpu::detect_isa());
}

void merge_splits(const MergeSplitsArgs& args, Stream& stream) {
  check(args);
  if (const OnGpu gpu(stream); gpu) {
    require_all_on(stream, {{"merge_splits", &args.partial_out},
                            {"merge_splits", &args.partial_lse},
                            {"merge_splits", &args.out},
                            {"merge_splits", &args.lse}});
    return cuda::merge_splits(args, stream);
  }
  cpu::merge_splits(args, cpu::detect_isa());
}

}  // namespace attend::kernels
