// The plan of attention on a GPU: row tiles and, for streamed plans, where each CTA begins. Derived on the
// device from device arrays; the host waits for nothing and reads nothing back.
#pragma once

#include "attend/kernels/attention/attention_plan.h"
#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda {

// Allocates everything in its constructor. How many CTAs a plan is for, their tile and whether they stream
// depends on the limits, batch.num_reqs(), max_seqlen_q, num_tokens and max_seqlen_kv, whether there is a
// tree mask, and the GPU's SM count alone, never on lengths, so a captured plan and attention serve every
// batch of the padded size.
//
// kBalanced: every CTA gets the same number of key tiles, or one row tile and head where there are many.
// kNone: a CTA computes all keys of a row tile.
// kFixed: the keys of a row are summed by splits of split_tokens, and those from left to right, whether a CTA
// computes them one after another or, where few rows meet many keys, several at the same time. With one
// kernel for extend, decode and verify a token's bits depend on its own sequence alone.
class DevicePlan {
 public:
  DevicePlan(const AttentionPlanLimits& limits, Device device);

  // Device bytes that the constructor allocates. Asks the device for its SM count when limits.num_workers is
  // 0.
  static size_t num_bytes(const AttentionPlanLimits& limits, Device device);

  // Queues the plan kernel. Throws Error(kInvalidArgument) when the batch has more requests than the limits.
  void plan(const QueryBatch& batch, const Visibility& visibility, Stream& stream);
  // As plan(), for one call of attention or MLA with this very batch: where requests have few rows and are
  // not too many, each CTA derives what it wants of the plan, and nothing is queued here. The bits are the
  // same.
  void plan_inline(const QueryBatch& batch, const Visibility& visibility, Stream& stream);

  // As AttentionPlan's.
  bool try_plan_inline(const QueryBatch& batch);

  // As AttentionPlan's.
  bool heeds_short_requests(int num_reqs) const;
  // How many clocks CTAs wait for others whose merge they share. However long, the bits are the same.
  void set_meeting_clocks(int clocks) { view_.meeting_clocks = clocks; }

  const AttentionPlanLimits& limits() const { return limits_; }  // num_workers filled
  // K/V heads as the plan has them: of MLA, groups of query heads that read the same latent rows.
  int num_head_groups() const { return num_head_groups_; }
  const PlanView& view() const { return view_; }
  // Row tiles that the last planned batch has at most.
  int num_row_tiles() const { return num_row_tiles_; }

 private:
  // How many CTAs of what tile there are, and how they share the work.
  struct Shape {
    PlanView view;
    int num_row_tiles, num_head_groups;
  };
  Shape shape_for(const QueryBatch& batch) const;
  void take(const Shape& shape);
  void launch(const QueryBatch& batch, const Visibility& visibility, Stream& stream);

  AttentionPlanLimits limits_;
  AttentionPlanLimits grouped_;  // with the groups of one query token
  Tensor first_row_tile_, header_, row_tiles_, cta_starts_;
  Tensor partial_out_, partial_state_, partials_done_, split_bank_;
  PlanView view_{};
  int num_row_tiles_ = 0, num_head_groups_ = 0;
};

// New tokens of one request at most, of a batch and a plan with these limits.
int64_t most_seqlen_q(const QueryBatch& batch, const AttentionPlanLimits& limits);

// The device's view of a batch and a visibility.
BatchParams batch_params(const QueryBatch& batch, const Visibility& visibility);

}  // namespace attend::kernels::cuda
