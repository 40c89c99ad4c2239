// attention() and mla() in two parts, for attention backends: a backend derives K/V, index, batch and mask
// itself, and checks them when it is created or plans. A call checks only its caller's arguments.
#pragma once

#include "attend/kernels/attention/attention.h"

namespace attend::kernels {

// Checks the sizes of a tree mask, and that kernels support the mask: the part of check(AttentionArgs) that
// is the same for all layers of a step. Throws the same errors.
void check_step(const QueryBatch& batch, int64_t num_tokens, const AttentionMask& attention_mask);

// Check q, out, lse and score: the part of check(AttentionArgs) and check(MlaArgs) that differs from call to
// call. On a GPU also checks that they are on the stream's device. Throw the same errors.
void check_call(const AttentionArgs& args, const Stream& stream);
void check_call(const MlaArgs& args, const Stream& stream);

// attention() and mla() for checked arguments, and a plan that was planned for their batch and mask.
void run(const AttentionArgs& args, AttentionPlan& plan, Stream& stream);
void run(const MlaArgs& args, AttentionPlan& plan, Stream& stream);

}  // namespace attend::kernels
