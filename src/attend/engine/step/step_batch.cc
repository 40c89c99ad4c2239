#include "attend/engine/step/step_batch.h"

#include <algorithm>
#include <utility>

#include "attend/base/error.h"
#include "attend/engine/adapters.h"

namespace attend {

StepBatch::StepBatch(const BatchLimits& limits, bool hidden_states) : hidden_states_(hidden_states) {
  const auto max_reqs = static_cast<size_t>(limits.max_reqs),
             max_rows = static_cast<size_t>(limits.max_logit_rows());
  batch_.requests.reserve(max_reqs);
  batch_.token_ids.reserve(static_cast<size_t>(limits.max_tokens));
  batch_.late_token_ids.reserve(Scheduler::kMaxPreparedRuns);
  batch_.rules.reserve(max_rows);
  sampling_requests_.reserve(max_rows);
}

const ExecutorBatch& StepBatch::build(const ScheduledStep& step, SharedPrefix shared,
                                      const TensorView& tokens_before) {
  batch_.mode = step.mode;
  batch_.requests.clear();
  batch_.token_ids.clear();
  batch_.token_types.clear();
  batch_.rope_positions.clear();
  batch_.images.clear();
  batch_.items.clear();
  batch_.late_token_ids.clear();
  batch_.tree_parents.clear();
  batch_.rules.clear();
  batch_.verified.clear();
  std::swap(batch_.verified, verified_);
  batch_.shared = shared;
  batch_.prefix_ready = step.prefix_ready;
  batch_.hidden_states = hidden_states_;
  sampling_requests_.clear();
  has_trees_ = std::ranges::any_of(step.requests, [](const ScheduledRequest& part) {
    return part.num_draft > 0 && !part.request->draft.parents.empty();
  });
  for (size_t i = 0; i < step.requests.size(); ++i) add_request(static_cast<int>(i), step.requests[i]);
  ensure(batch_.num_tokens() == step.num_tokens, "step with ", step.num_tokens, " tokens, but requests with ",
         batch_.num_tokens());
  add_rope_positions(step);
  if (step.ahead) add_late_token_ids(step, tokens_before);
  return batch_;
}

void StepBatch::add_request(int request_idx, const ScheduledRequest& part) {
  const Request& request = *part.request;
  const bool waits = part.previous_index >= 0;
  const int end = request.num_computed + part.num_new, num_known = request.num_tokens();
  for (int position = request.num_computed; position < end; ++position) {
    const bool known = position < num_known;
    const std::vector<int32_t>& ids = known ? request.tokens : request.draft.tokens;
    batch_.token_ids.push_back(waits ? 0 : ids[static_cast<size_t>(known ? position : position - num_known)]);
  }
  add_token_types(request, part);
  if (has_trees_) add_tree(part);
  if (request.images) add_images(request_idx, part);
  batch_.hidden_states |= request.pools;
  const int num_rows = part.num_logit_rows();
  batch_.requests.push_back({.row = request.row,
                             .num_computed = request.num_computed,
                             .num_new = part.num_new,
                             .prompt_len = std::max(request.num_prompt, request.rope_len),
                             .num_logit_rows = num_rows,
                             .num_drafts = part.num_draft,
                             .adapter = request.adapter ? &request.adapter->weights : nullptr});
  depths_.assign(1, waits ? 1 : 0);
  for (int i = 0; i < num_rows; ++i) {
    if (i > 0) depths_.push_back(depths_[static_cast<size_t>(request.draft.parent(i - 1) + 1)] + 1);
    batch_.rules.push_back(request.sampling_rule());
    batch_.rules.back().step += depths_.back();
    sampling_requests_.push_back(request_idx);
  }
}

void StepBatch::add_tree(const ScheduledRequest& part) {
  const int num_known = part.num_new - part.num_draft;
  for (int i = 0; i < num_known; ++i) batch_.tree_parents.push_back(i - 1);
  for (int i = 0; i < part.num_draft; ++i)
    batch_.tree_parents.push_back(num_known + part.request->draft.parent(i));
}

// Adds types for all tokens of the step if any request has some.
void StepBatch::add_token_types(const Request& request, const ScheduledRequest& part) {
  if (request.token_types.empty() && batch_.token_types.empty()) return;
  const size_t first = batch_.token_ids.size() - static_cast<size_t>(part.num_new);
  batch_.token_types.resize(first, 0);
  for (int i = 0; i < part.num_new; ++i)
    batch_.token_types.push_back(
        request.token_types.empty() ? 0 : request.token_types[static_cast<size_t>(request.num_computed + i)]);
}

void StepBatch::add_images(int request_idx, const ScheduledRequest& part) {
  const Request& request = *part.request;
  const int begin = request.num_computed, end = begin + part.num_new;
  const int first_in_batch = batch_.num_tokens() - part.num_new;
  for (const ImageRun& run : request.images->runs) {
    const int first = std::max(begin, run.first_token), last = std::min(end, run.end_token());
    if (first >= last) continue;
    const int first_row = run.first_row + first - run.first_token,
              first_token = first_in_batch + first - begin;
    batch_.images.push_back(
        {.first_token = first_token,
         .rows = request.encoded[run.image].view().slice(0, first_row, first_row + last - first)});
    if (request.images->pad_id >= 0)
      std::fill_n(batch_.token_ids.begin() + first_token, last - first, request.images->pad_id);
    if (!request.images->bidirectional) continue;
    ensure(last == run.end_token(), "a chunk of request ", request.id, " ends at token ", last,
           ", within an image of the tokens ", run.first_token, " to ", run.end_token());
    batch_.items.push_back({.request_idx = request_idx,
                            .first_token = first_token,
                            .num_tokens = last - first,
                            .end = run.end_token()});
  }
}

void StepBatch::add_rope_positions(const ScheduledStep& step) {
  const auto has_axes = [](const ScheduledRequest& part) {
    return part.request->images && !part.request->images->axes[0].empty();
  };
  if (std::ranges::none_of(step.requests, has_axes)) return;
  for (size_t axis = 0; axis < 3; ++axis)
    for (const ScheduledRequest& part : step.requests) {
      const Request& request = *part.request;
      for (int token = request.num_computed; token < request.num_computed + part.num_new; ++token)
        batch_.rope_positions.push_back(has_axes(part) ? request.images->position(axis, token) : token);
    }
}

// Adds one copy for each run of requests that are adjacent in the previous step.
void StepBatch::add_late_token_ids(const ScheduledStep& step, const TensorView& tokens_before) {
  const size_t num_reqs = step.requests.size();
  for (size_t first = 0, end = 0; first < num_reqs; first = end) {
    const int from = step.requests[first].previous_index;
    while (end < num_reqs && step.requests[end].previous_index - from == static_cast<int>(end - first)) ++end;
    batch_.late_token_ids.push_back(
        {static_cast<int>(first), tokens_before.slice(0, from, from + static_cast<int64_t>(end - first))});
  }
}

}  // namespace attend
