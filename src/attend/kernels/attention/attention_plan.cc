#include "attend/kernels/attention/attention_plan.h"

#include <algorithm>

#include "attend/base/parallel.h"
#include "attend/kernels/attention/cpu/tile_scratch.h"
#include "attend/kernels/attention/cuda/plan.h"
#include "attend/kernels/attention/make_work.h"
#include "attend/kernels/common/on_gpu.h"

namespace attend::kernels {
namespace {

AttentionPlanLimits checked(AttentionPlanLimits limits) {
  if (limits.split_tokens == 0) limits.split_tokens = default_split_tokens(Device{});
  require(limits.max_reqs >= 0 && limits.max_tokens >= 0 && limits.max_kv_tokens >= 0,
          "attention plan: max_reqs ", limits.max_reqs, ", max_tokens ", limits.max_tokens,
          ", max_kv_tokens ", limits.max_kv_tokens, ": expected none below 0");
  require(limits.num_kv_heads > 0 && limits.num_q_heads > 0 && limits.num_q_heads % limits.num_kv_heads == 0,
          "attention plan: num_q_heads ", limits.num_q_heads, ": expected a multiple of num_kv_heads ",
          limits.num_kv_heads);
  require(limits.head_dim_v > 0, "attention plan: head_dim_v ", limits.head_dim_v, ": expected above 0");
  require(limits.split_tokens > 0 && limits.split_tokens % 64 == 0, "attention plan: split_tokens ",
          limits.split_tokens, ": expected a multiple of 64");
  require(limits.num_workers >= 0, "attention plan: num_workers ", limits.num_workers,
          ": expected above 0, or 0 for all threads");
  if (limits.num_workers == 0) limits.num_workers = num_threads();
  return limits;
}

int64_t scratch_bytes(const AttentionPlanLimits& limits) {
  return static_cast<int64_t>(cpu::TileScratch::num_bytes(cpu::TileShape::make(limits)));
}

// make_work() does not check lengths: with a negative one, items would have ranges of keys or tokens that do
// not exist.
void check_lengths(const QueryBatch& batch) {
  const auto num_reqs = static_cast<size_t>(batch.num_reqs());
  if (num_reqs == 0) return;
  const View<const int32_t> cu = batch.cu_seqlen_q;
  require(cu.size() == num_reqs + 1, "cu_seqlen_q of ", cu.size(), " entries: expected ", num_reqs + 1,
          " for ", num_reqs, " requests (attention plan)");
  require(cu[0] >= 0, "cu_seqlen_q[0] is ", cu[0], ": expected none below 0 (attention plan)");
  for (size_t r = 0; r < num_reqs; ++r) {
    require(batch.seqlen_kv[r] >= 0, "request ", r, " has seqlen_kv ", batch.seqlen_kv[r],
            ": expected none below 0 (attention plan)");
    require(cu[r] <= cu[r + 1], "cu_seqlen_q falls from ", cu[r], " to ", cu[r + 1], " at request ", r,
            ": expected sums of lengths (attention plan)");
    require(cu[r + 1] - cu[r] <= batch.max_seqlen_q, "request ", r, " has ", cu[r + 1] - cu[r],
            " new tokens: expected at most max_seqlen_q ", batch.max_seqlen_q, " (attention plan)");
  }
}

void require_fits(const QueryBatch& batch, const AttentionPlanLimits& limits) {
  require(batch.num_reqs() <= limits.max_reqs, "batch of ", batch.num_reqs(),
          " requests: the plan was made for at most ", limits.max_reqs);
}

}  // namespace

AttentionPlan::AttentionPlan(const AttentionPlanLimits& limits, Device device) {
  if (const OnGpu gpu(device); gpu) {
    device_plan_ = std::make_shared<cuda::DevicePlan>(cuda::make_plan(limits, device));
    limits_ = device_plan_->limits();
    return;
  }
  limits_ = checked(limits);
  const WorkBounds bounds = work_bounds(limits_, cpu::q_tile_tokens(limits_));
  work_.items.reserve(static_cast<size_t>(bounds.num_items));
  work_.merges.reserve(static_cast<size_t>(bounds.num_merges));
  partial_out_ =
      Tensor::empty({bounds.num_partial_rows, limits_.num_q_heads, limits_.head_dim_v}, DType::kF32);
  partial_lse_ = Tensor::empty({bounds.num_partial_rows, limits_.num_q_heads}, DType::kF32);
  scratch_ = Tensor::empty({limits_.num_workers, scratch_bytes(limits_)}, DType::kU8);
}

size_t AttentionPlan::num_bytes(const AttentionPlanLimits& limits, Device device) {
  if (const OnGpu gpu(device); gpu) return cuda::plan_bytes(limits, device);
  const AttentionPlanLimits filled = checked(limits);
  const WorkBounds bounds = work_bounds(filled, cpu::q_tile_tokens(filled));
  const int64_t row_bytes =
      filled.num_q_heads * (filled.head_dim_v + 1) * static_cast<int64_t>(sizeof(float));
  return static_cast<size_t>(bounds.num_items) * sizeof(WorkItem) +
         static_cast<size_t>(bounds.num_merges) * sizeof(MergeItem) +
         static_cast<size_t>(bounds.num_partial_rows * row_bytes) +
         static_cast<size_t>(filled.num_workers * scratch_bytes(filled));
}

void AttentionPlan::plan(const QueryBatch& batch, const AttentionMask& attention_mask, Stream& stream) {
  if (const OnGpu gpu(stream); device_plan_ != nullptr) {
    require_fits(batch, limits_);
    cuda::plan(*device_plan_, batch, attention_mask, stream);
    attention_mask_ = attention_mask;
    num_reqs_ = batch.num_reqs();
    return;
  }
  check_lengths(batch);
  const int64_t num_tokens = batch.cu_seqlen_q.empty() ? 0 : batch.cu_seqlen_q.back();
  int64_t num_kv_tokens = 0;
  for (int32_t seqlen : batch.seqlen_kv) num_kv_tokens += seqlen;
  require_fits(batch, limits_);
  require(num_tokens <= limits_.max_tokens, "batch of ", num_tokens,
          " tokens: the plan was made for at most ", limits_.max_tokens);
  require(num_kv_tokens <= limits_.max_kv_tokens, "batch of ", num_kv_tokens,
          " KV tokens: the plan was made for at most ", limits_.max_kv_tokens);
  attention_mask_ = attention_mask;
  num_reqs_ = batch.num_reqs();
  make_work(limits_, batch, attention_mask, cpu::q_tile_tokens(limits_), work_);
}

void AttentionPlan::plan_inline(const QueryBatch& batch, const AttentionMask& attention_mask,
                                Stream& stream) {
  const OnGpu gpu(stream);
  if (device_plan_ == nullptr) return plan(batch, attention_mask, stream);
  require_fits(batch, limits_);
  cuda::plan_inline(*device_plan_, batch, attention_mask, stream);
  attention_mask_ = attention_mask;
  num_reqs_ = batch.num_reqs();
}

bool AttentionPlan::plan_depends_on_kv_len(int num_reqs) const {
  return device_plan_ != nullptr && cuda::plan_depends_on_kv_len(*device_plan_, num_reqs);
}

bool AttentionPlan::try_plan_inline(const QueryBatch& batch, const AttentionMask& attention_mask) {
  if (device_plan_ == nullptr) return false;
  require_fits(batch, limits_);
  if (!cuda::try_plan_inline(*device_plan_, batch)) return false;
  attention_mask_ = attention_mask;
  num_reqs_ = batch.num_reqs();
  return true;
}

}  // namespace attend::kernels
