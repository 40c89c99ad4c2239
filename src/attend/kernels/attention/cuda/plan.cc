#include "attend/kernels/attention/cuda/plan.h"

#include "attend/base/error.h"
#include "attend/kernels/attention/cuda/choose.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels::cuda {
namespace {

// split_kv_barrier.cuh counts the CTAs of a work tile, at most two per worker, in ten bits.
constexpr int kMaxWorkers = 1023 / 2;

AttentionPlanLimits filled(AttentionPlanLimits limits, Device device) {
  if (limits.split_tokens == 0) limits.split_tokens = default_split_tokens(device);
  require(device.type == DeviceType::kCuda, "attention plan on ", device, ": expected a GPU");
  require(limits.max_reqs >= 0 && limits.max_tokens >= 0, "attention plan: max_reqs ", limits.max_reqs,
          ", max_tokens ", limits.max_tokens, ": expected none below 0");
  require(limits.num_kv_heads > 0 && limits.num_q_heads > 0 && limits.num_q_heads % limits.num_kv_heads == 0,
          "attention plan: num_q_heads ", limits.num_q_heads, ": expected a multiple of num_kv_heads ",
          limits.num_kv_heads);
  require(limits.head_dim_v > 0, "attention plan: head_dim_v ", limits.head_dim_v, ": expected above 0");
  require(limits.split_tokens > 0 && limits.split_tokens % kKeyTile == 0, "attention plan: split_tokens ",
          limits.split_tokens, ": expected a multiple of ", kKeyTile);
  require(limits.num_workers >= 0, "attention plan: num_workers ", limits.num_workers,
          ": expected above 0, or 0 for all SMs");
  if (limits.num_workers == 0) limits.num_workers = attend::cuda::device_info(device).num_sms;
  require(limits.num_workers <= kMaxWorkers, "attention plan: num_workers ", limits.num_workers,
          ": expected at most ", kMaxWorkers);
  return limits;
}

AttentionStep make_step(const AttentionPlanLimits& limits, const QueryBatch& batch, bool plans_inline) {
  return {.limits = limits,
          .num_reqs = batch.num_reqs(),
          .max_seqlen_q = batch.max_seqlen_q,
          .num_tokens = batch.num_tokens,
          .max_seqlen_kv = batch.max_seqlen_kv,
          .has_tree_mask = !batch.tree_mask.empty(),
          .plans_inline = plans_inline};
}

}  // namespace

DevicePlan make_plan(const AttentionPlanLimits& limits, Device device) {
  const AttentionPlanLimits full = filled(limits, device);
  return {full, plan_sizes(full, gpu_facts(device)), device};
}

size_t plan_bytes(const AttentionPlanLimits& limits, Device device) {
  const AttentionPlanLimits full = filled(limits, device);
  return DevicePlan::num_bytes(full, plan_sizes(full, gpu_facts(device)));
}

void plan(DevicePlan& plan, const QueryBatch& batch, const AttentionMask& attention_mask, Stream& stream) {
  const AttentionStep step = make_step(plan.limits(), batch, /*plans_inline=*/false);
  plan.take(step, choose_plan(step, gpu_facts(plan.device())));
  plan.launch(batch, attention_mask, stream);
}

void plan_inline(DevicePlan& plan, const QueryBatch& batch, const AttentionMask& attention_mask,
                 Stream& stream) {
  const AttentionStep step = make_step(plan.limits(), batch, /*plans_inline=*/true);
  plan.take(step, choose_plan(step, gpu_facts(plan.device())));
  if (!plan.shape().inline_plan) plan.launch(batch, attention_mask, stream);
}

bool try_plan_inline(DevicePlan& plan, const QueryBatch& batch) {
  const AttentionStep step = make_step(plan.limits(), batch, /*plans_inline=*/true);
  const PlanShape shape = choose_plan(step, gpu_facts(plan.device()));
  if (shape.inline_plan) plan.take(step, shape);
  return shape.inline_plan;
}

bool plan_depends_on_kv_len(const DevicePlan& plan, int num_reqs) {
  return num_reqs <= plan.limits().max_reqs &&
         plan_depends_on_kv_len({.limits = plan.limits(), .num_reqs = num_reqs, .max_seqlen_q = 1},
                                gpu_facts(plan.device()));
}

}  // namespace attend::kernels::cuda
