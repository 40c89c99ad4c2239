// The plan of attention on a GPU: row tiles and, for streamed plans, where each CTA begins. Derived on the
// device from device arrays; the host waits for nothing and reads nothing back.
#pragma once

#include "attend/kernels/attention/attention_batch.h"
#include "attend/kernels/attention/cuda/common/attention_params.h"
#include "attend/kernels/attention/cuda/common/plan/plan_shape.h"

namespace attend::kernels::cuda {

// Carries out what choose() decides (cuda/choose.h): a PlanShape for a step. Shapes depend on limits and
// padded sizes alone, never on lengths, so a captured plan and attention serve every batch of the padded
// size. Allocates everything in its constructor.
//
// kBalanced: every CTA gets the same number of key tiles, or one row tile and head where there are many.
// kNone: a CTA computes all keys of a row tile.
// kFixed: the keys of a row are summed by splits of split_tokens, and those from left to right, whether a CTA
// computes them one after another or, where few rows meet many keys, several at the same time. With one
// kernel for extend, decode and verify a token's bits depend on its own sequence alone.
class DevicePlan {
 public:
  // `limits`: split_tokens and num_workers filled. `sizes`: plan_sizes() of them.
  DevicePlan(const AttentionPlanLimits& limits, const PlanSizes& sizes, Device device);

  // Device bytes that the constructor allocates.
  static size_t num_bytes(const AttentionPlanLimits& limits, const PlanSizes& sizes);

  // The next step and the shape that was chosen for it.
  void take(const AttentionStep& step, const PlanShape& shape);
  // Queues the plan kernel for the step's batch. Not called for inline plans, which CTAs derive.
  void launch(const QueryBatch& batch, const AttentionMask& attention_mask, Stream& stream) const;

  // How many clocks CTAs wait for others whose merge they share. However long, the bits are the same.
  void set_barrier_timeout_clocks(int clocks) { view_.barrier_timeout_clocks = clocks; }

  const AttentionPlanLimits& limits() const { return limits_; }
  Device device() const { return header_.view().device; }
  // Of the last take().
  const AttentionStep& step() const { return step_; }
  const PlanShape& shape() const { return shape_; }
  const PlanView& view() const { return view_; }  // for the device
  int num_head_groups() const { return shape_.num_head_groups; }
  int num_row_tiles() const { return shape_.num_row_tiles; }

 private:
  AttentionPlanLimits limits_;
  Tensor first_row_tile_, header_, row_tiles_, cta_starts_;
  Tensor partial_out_, partial_state_, partials_done_, split_accumulators_;
  AttentionStep step_;
  PlanShape shape_{};
  PlanView view_{};
};

// The device's view of a batch and a visibility.
BatchParams batch_params(const QueryBatch& batch, const AttentionMask& attention_mask);

}  // namespace attend::kernels::cuda
