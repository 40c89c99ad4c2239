#include "attend/engine/step_inputs.h"

#include <algorithm>

namespace attend {

StepInputs::StepInputs(const BatchLimits& limits, const ReqToTokenPool& rows) : rows_(rows) {
  const auto max_reqs = static_cast<size_t>(limits.max_reqs);
  const auto max_tokens = static_cast<size_t>(limits.max_tokens);
  request_rows_.resize(max_reqs);
  seqlen_kv_.resize(max_reqs);
  cu_seqlen_q_.resize(max_reqs + 1);
  prompt_lens_.resize(max_reqs);
  logit_rows_.resize(max_reqs);
  sampling_requests_.resize(max_reqs);
  positions_.resize(max_tokens);
  token_ids_.resize(max_tokens);
  out_slots_.resize(max_tokens);
}

void StepInputs::build(const ScheduledStep& step) {
  const size_t num_reqs = step.requests.size();
  const auto num_tokens = static_cast<size_t>(step.num_tokens);
  size_t token = 0;
  num_sampling_ = 0;
  int max_seqlen_q = 0;
  cu_seqlen_q_[0] = 0;
  for (size_t i = 0; i < num_reqs; ++i) {
    const auto& [request, num_new] = step.requests[i];
    const View<const TokenSlot> slots = rows_.row(request->row);
    for (int position = request->num_computed; position < request->num_computed + num_new;
         ++position, ++token) {
      token_ids_[token] = request->tokens[static_cast<size_t>(position)];
      positions_[token] = position;
      out_slots_[token] = slots[static_cast<size_t>(position)];
    }
    request_rows_[i] = request->row;
    seqlen_kv_[i] = request->num_computed + num_new;
    prompt_lens_[i] = request->num_prompt;
    cu_seqlen_q_[i + 1] = static_cast<int32_t>(token);
    max_seqlen_q = std::max(max_seqlen_q, num_new);
    if (step.requests[i].samples()) {
      logit_rows_[num_sampling_] = static_cast<int32_t>(token) - 1;
      sampling_requests_[num_sampling_] = static_cast<int32_t>(i);
      ++num_sampling_;
    }
  }
  batch_ = {.mode = step.mode,
            .num_reqs = static_cast<int>(num_reqs),
            .num_tokens = step.num_tokens,
            .max_seqlen_q = max_seqlen_q,
            .request_rows = {request_rows_.data(), num_reqs},
            .seqlen_kv = {seqlen_kv_.data(), num_reqs},
            .cu_seqlen_q = {cu_seqlen_q_.data(), num_reqs + 1},
            .positions = {positions_.data(), num_tokens},
            .out_slots = {out_slots_.data(), num_tokens},
            .tree_mask = {}};
  model_input_ = {.token_ids = {token_ids_.data(), num_tokens},
                  .logit_rows = {logit_rows_.data(), num_sampling_},
                  .prompt_lens = {prompt_lens_.data(), num_reqs}};
}

}  // namespace attend
