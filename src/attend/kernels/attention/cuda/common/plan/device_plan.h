// Plan of attention on a GPU: row tiles and, for streamed plans, the start of each CTA. Derived on the device
// from device arrays; the host neither waits nor reads anything back.
#pragma once

#include "attend/kernels/attention/attention_batch.h"
#include "attend/kernels/attention/cuda/common/attention_params.h"
#include "attend/kernels/attention/cuda/common/plan/plan_shape.h"

namespace attend::kernels::cuda {

// Implements the PlanShape that choose() (cuda/choose.h) selects for a step. Shapes depend only on limits and
// padded sizes, never on lengths, so a captured plan and attention serve every batch of the padded size.
// Allocates all memory in its constructor.
//
// kBalanced: every CTA gets the same number of key tiles, or one row tile and head if there are many.
// kNone: a CTA computes all keys of a row tile.
// kFixed: the keys of a row are summed in splits of split_tokens, and the splits from left to right, whether
// a CTA computes them one after another or, if few rows have many keys, several CTAs compute them
// concurrently. With one kernel for extend, decode and verify, a token's bits depend only on its own
// sequence.
class DevicePlan {
 public:
  // `limits`: with split_tokens and num_workers set. `sizes`: plan_sizes() of these limits.
  DevicePlan(const AttentionPlanLimits& limits, const PlanSizes& sizes, Device device);

  // Returns the device bytes that the constructor allocates.
  static size_t num_bytes(const AttentionPlanLimits& limits, const PlanSizes& sizes);

  // Sets the next step and the shape that was selected for it.
  void take(const AttentionStep& step, const PlanShape& shape);
  // Launches the plan kernel for the step's batch. Not called for inline plans, which CTAs derive.
  void launch(const QueryBatch& batch, const AttentionMask& attention_mask, Stream& stream) const;

  // Sets the number of clocks for which CTAs wait for others that share their merge. Results do not depend on
  // it.
  void set_barrier_timeout_clocks(int clocks) { view_.barrier_timeout_clocks = clocks; }

  const AttentionPlanLimits& limits() const { return limits_; }
  Device device() const { return header_.view().device; }
  // Step of the last take().
  const AttentionStep& step() const { return step_; }
  const PlanShape& shape() const { return shape_; }
  const PlanView& view() const { return view_; }  // for kernels
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

// Converts a batch and a mask to kernel parameters.
BatchParams batch_params(const QueryBatch& batch, const AttentionMask& attention_mask);

}  // namespace attend::kernels::cuda
