// AttentionPlan: a step's work items, derived once for all layers, and the workspace for partial results.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attend/kernels/attention/attention_batch.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

namespace cuda {
class DevicePlan;
}

// How a request's KV is cut into splits.
enum class SplitRule : uint8_t {
  kNone,   // never
  kFixed,  // at multiples of split_tokens, counted from position 0: a token's bits depend on its own sequence
           // alone
  kBalanced,  // so that all workers (threads, SMs) have about the same amount to do
};

// The size of fixed splits where nobody asks for one. Smaller ones share one long request among more workers,
// larger ones end less often.
constexpr int default_split_tokens(Device device) { return device.type == DeviceType::kCpu ? 256 : 512; }

struct AttentionPlanLimits {
  int max_reqs = 0;
  int max_tokens = 0;
  int64_t max_kv_tokens = 0;  // sum of seqlen_kv over a batch
  int num_q_heads = 0;
  int num_kv_heads = 0;
  int head_dim_v = 0;
  SplitRule split_rule = SplitRule::kBalanced;
  // kFixed; a multiple of 64. 0: default_split_tokens() of the device; a plan's limits() have it filled. Bits
  // depend on it.
  int split_tokens = 0;
  // 0: threads of the process, or SMs of the device; a plan's limits() have it filled. On a GPU 511 at most.
  int num_workers = 0;
  // Of the cache. GPUs plan for the kernel that takes it, as far as they know; a cache of another dtype is
  // served too, but not as fast.
  DType kv_dtype = DType::kBF16;
};

// The part of one request that one thread (or CTA) processes, for one KV head.
struct WorkItem {
  int32_t request;
  int32_t q_begin, q_end;    // new tokens of the request
  int32_t kv_begin, kv_end;  // positions; a layer's window may leave less, or nothing
  int32_t partial;           // row of the partial result of token q_begin; -1: the result is final
};

// The partial results of one token, merged left to right.
struct MergeItem {
  int32_t token;    // in the batch
  int32_t partial;  // row of the first split
  int32_t stride;   // rows from one split to the next
  int32_t num_splits;
};

// Work items that one thread or CTA processes, and what is to be merged afterward.
struct Work {
  std::vector<WorkItem> items;
  std::vector<MergeItem> merges;
  int64_t num_partial_rows = 0;
};

// Allocates everything in its constructor; plan() only computes, so that a step makes no allocation.
class AttentionPlan {
 public:
  AttentionPlan(const AttentionPlanLimits& limits, Device device);

  // Bytes the constructor allocates on `device`.
  static size_t num_bytes(const AttentionPlanLimits& limits, Device device = {});

  // Derives the work items of a step for layers of one visibility. Throws Error(kInvalidArgument) when the
  // batch exceeds the limits, naming which, and, naming the request, for a negative seqlen_kv, a cu_seqlen_q
  // that falls and more new tokens than max_seqlen_q. On a GPU lengths are not read by the host, so not
  // checked.
  void plan(const QueryBatch& batch, const AttentionMask& attention_mask, Stream& stream);

  // As plan(), for one call of attention or MLA alone, which is given the same batch: its lengths are to be
  // there until then. On a GPU a call for few rows of each request derives the plan on its way, which saves a
  // launch; the bits are those of plan().
  void plan_inline(const QueryBatch& batch, const AttentionMask& attention_mask, Stream& stream);

  // plan_inline(), where that queues nothing; otherwise false, and nothing has changed.
  bool try_plan_inline(const QueryBatch& batch, const AttentionMask& attention_mask);

  // Whether a plan of a decode step of so many requests depends on whether they are short, as
  // QueryBatch::max_seqlen_kv says.
  bool plan_depends_on_kv_len(int num_reqs) const;

  const AttentionPlanLimits& limits() const { return limits_; }
  // On a GPU: the plan itself; work(), partial results and scratch are those of the CPU.
  const cuda::DevicePlan& device_plan() const { return *device_plan_; }
  // What the last plan() was for.
  const AttentionMask& attention_mask() const { return attention_mask_; }
  int num_reqs() const { return num_reqs_; }
  const Work& work() const { return work_; }
  const TensorView& partial_out() const {
    return partial_out_.view();
  }  // f32 [rows, num_q_heads, head_dim_v]
  const TensorView& partial_lse() const { return partial_lse_.view(); }  // f32 [rows, num_q_heads]
  // What a CPU worker computes in; 0 <= worker < limits().num_workers.
  void* scratch(int worker) { return scratch_.view()[worker].data; }

 private:
  AttentionPlanLimits limits_;
  AttentionMask attention_mask_;
  int num_reqs_ = 0;
  Work work_;  // capacity for the limits, reserved once
  Tensor partial_out_, partial_lse_;
  Tensor scratch_;  // [num_workers, bytes]
  std::shared_ptr<cuda::DevicePlan> device_plan_;
};

}  // namespace attend::kernels
#pragma GCC visibility pop
