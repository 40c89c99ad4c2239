// attention() and mla() in two parts, for attention backends: a backend derives K/V, index, batch and mask
// itself, and checks them when it is created or plans. A call checks only what its caller passes.
#pragma once

#include "attend/kernels/attention/attention.h"

namespace attend::kernels {

// Sizes of a tree mask, and whether the mask is one that kernels have: part of check(AttentionArgs) that is
// the same for all layers of a step. Throws as it does.
void check_step(const QueryBatch& batch, int64_t num_tokens, const AttentionMask& attention_mask);

// q, out, lse and score: part of check(AttentionArgs), check(MlaArgs) that differs from call to call. On a
// GPU also whether they are on the stream's device. Throws as these do.
void check_call(const AttentionArgs& args, const Stream& stream);
void check_call(const MlaArgs& args, const Stream& stream);

// attention(), mla() of arguments that are checked, and a plan that was planned for their batch and mask.
void run(const AttentionArgs& args, AttentionPlan& plan, Stream& stream);
void run(const MlaArgs& args, AttentionPlan& plan, Stream& stream);

}  // namespace attend::kernels
