// A batch planned once, for the calls of all layers of a step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention_call.h"

namespace attend::python {

// The lengths of each request, copied: a caller may write others into the same vectors.
struct RequestLengths {
  std::vector<int32_t> queries, cached, appended, leftpad;
};

// The workspace's arrays stay where they are, so a captured call that uses it serves whatever lengths the
// last replayed plan saw.
struct SchedulerMetadata {
  Device device = {};
  int num_reqs = 0, num_tokens = 0, max_seqlen_q = 0;
  bool appended_are_ragged = false;
  int32_t max_seqlen_appended = 0;  // of each request, unless they are ragged
  int64_t num_appended = 0;         // of all, at most
  bool tokens_are_bound = false;    // num_tokens is what there may be
  bool has_leftpad = false;
  kernels::AttentionMask attention_mask = {};
  RequestLengths lengths = {};  // on the CPU; a GPU's are not read by the host
  std::shared_ptr<Workspace> workspace = {};
};

// Plans `call`, of which only the lengths and the mask are read.
SchedulerMetadata plan_once(const AttentionCall& call, const kernels::AttentionPlanLimits& limits,
                            Device device, Stream stream);

// Whether the plan's requests append keys or have a leftpad where the call's do not, or the other way round:
// it is of no use to the call then.
bool lengths_differ(const SchedulerMetadata& metadata, const AttentionCall& call);

// Throws Error(kInvalidArgument) when the call is another than what was planned: in batch, queries, heads,
// mask or split rule; on the CPU also in a length, naming the request.
void require_planned_for(const SchedulerMetadata& metadata, const AttentionCall& call);

}  // namespace attend::python
