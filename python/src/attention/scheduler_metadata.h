// SchedulerMetadata: plan of a batch that the calls of all layers of a step share.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention/attention_call.h"

namespace attend::python {

// Lengths of all requests, copied, since a caller may overwrite the same vectors.
struct RequestLengths {
  std::vector<int32_t> queries, cached, appended, leftpad;
};

// The workspace's arrays have fixed addresses, so a captured call that uses it works with the lengths of the
// last replayed plan.
struct SchedulerMetadata {
  Device device = {};
  int num_reqs = 0, num_tokens = 0, max_seqlen_q = 0;
  bool appended_are_ragged = false;
  int32_t max_seqlen_appended = 0;  // of each request, unless they are ragged
  int64_t num_appended = 0;         // upper bound over all requests
  bool tokens_are_bound = false;    // num_tokens is an upper bound
  bool has_leftpad = false;
  kernels::AttentionMask attention_mask = {};
  RequestLengths lengths = {};  // on the CPU; the host does not read a GPU's lengths
  std::shared_ptr<Workspace> workspace = {};
};

// Plans `call`, of which only the lengths and the mask are read.
SchedulerMetadata plan_once(const AttentionCall& call, const kernels::AttentionPlanLimits& limits,
                            Device device, Stream stream);

// Returns true if only one of the plan and the call appends keys or has a leftpad, so that the plan cannot be
// used.
bool lengths_differ(const SchedulerMetadata& metadata, const AttentionCall& call);

// Throws Error(kInvalidArgument) if the call does not match the plan in batch, queries, heads, mask or split
// rule; on the CPU also in a length, naming the request.
void require_planned_for(const SchedulerMetadata& metadata, const AttentionCall& call);

}  // namespace attend::python
