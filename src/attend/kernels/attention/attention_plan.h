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
  kNone,  // never
  // At multiples of split_tokens, counted from position 0: a token's bits depend only on its own sequence.
  kFixed,
  kBalanced,  // balanced: all workers (threads, SMs) process about the same amount
};

// Returns the default size of fixed splits. Smaller splits distribute one long request over more workers;
// larger splits have fewer partial results to merge.
constexpr int default_split_tokens(Device device) { return device.type == DeviceType::kCpu ? 256 : 512; }

struct AttentionPlanLimits {
  int max_reqs = 0;
  int max_tokens = 0;
  int64_t max_kv_tokens = 0;  // sum of seqlen_kv over a batch
  int num_q_heads = 0;
  int num_kv_heads = 0;
  int head_dim_v = 0;
  SplitRule split_rule = SplitRule::kBalanced;
  // kFixed; a multiple of 64. 0: default_split_tokens() of the device; a plan's limits() contain the size.
  // Bits depend on it.
  int split_tokens = 0;
  // 0: threads of the process, or SMs of the device; a plan's limits() contain the number. On a GPU at most
  // 511.
  int num_workers = 0;
  // Dtype of the cache. On GPUs the plan's shape fits the kernel that is expected for it; a cache of another
  // dtype is supported, but slower.
  DType kv_dtype = DType::kBF16;
};

// The part of one request that one thread (or CTA) processes, for one KV head.
struct WorkItem {
  int32_t request;
  int32_t q_begin, q_end;    // new tokens of the request
  int32_t kv_begin, kv_end;  // positions; a layer's window may mask some or all of them
  int32_t partial;           // row of the partial result of token q_begin; -1: the result is final
};

// The partial results of one token, merged left to right.
struct MergeItem {
  int32_t token;    // in the batch
  int32_t partial;  // row of the first split
  int32_t stride;   // rows from one split to the next
  int32_t num_splits;
};

// Work items that one thread or CTA processes, and the merges that follow.
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
  // batch exceeds a limit, with the limit's name, and for a negative seqlen_kv, a decreasing cu_seqlen_q or
  // more new tokens than max_seqlen_q, with the request's number. On a GPU the host does not read lengths, so
  // they are not checked.
  void plan(const QueryBatch& batch, const AttentionMask& attention_mask, Stream& stream);

  // Same as plan(), for a single call of attention or MLA with the same batch, the lengths of which must stay
  // valid until that call. On a GPU a call with few rows per request derives the plan in its own kernel,
  // which saves a launch; the bits are those of plan().
  void plan_inline(const QueryBatch& batch, const AttentionMask& attention_mask, Stream& stream);

  // Calls plan_inline() if that launches nothing. Otherwise returns false and changes nothing.
  bool try_plan_inline(const QueryBatch& batch, const AttentionMask& attention_mask);

  // Returns true if the plan of a decode step of `num_reqs` requests depends on whether
  // QueryBatch::max_seqlen_kv is at most kShortRequestMaxKeys.
  bool plan_depends_on_kv_len(int num_reqs) const;

  const AttentionPlanLimits& limits() const { return limits_; }
  // On a GPU: the plan itself; work(), partial results and scratch are those of the CPU.
  const cuda::DevicePlan& device_plan() const { return *device_plan_; }
  // Mask of the last plan().
  const AttentionMask& attention_mask() const { return attention_mask_; }
  int num_reqs() const { return num_reqs_; }
  const Work& work() const { return work_; }
  const TensorView& partial_out() const {
    return partial_out_.view();
  }  // f32 [rows, num_q_heads, head_dim_v]
  const TensorView& partial_lse() const { return partial_lse_.view(); }  // f32 [rows, num_q_heads]
  // Scratch memory of a CPU worker; 0 <= worker < limits().num_workers.
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
