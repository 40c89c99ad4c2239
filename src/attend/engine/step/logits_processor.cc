#include "attend/engine/step/logits_processor.h"

#include <bit>
#include <limits>

namespace attend {

bool LogitsProcessor::needed(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f ||
         params.presence_penalty != 0.0f || !params.logit_bias.empty() || params.min_tokens > 0;
}

LogitsProcessor::LogitsProcessor(const SamplingParams& params, std::span<const int32_t> prompt,
                                 std::span<const int32_t> stop_ids)
    : repetition_(params.repetition_penalty),
      frequency_(params.frequency_penalty),
      presence_(params.presence_penalty),
      num_tokens_until_stop_(params.min_tokens) {
  if (repetition_ != 1.0f)
    for (const int32_t id : prompt) states_[find_edit(id)].in_prompt = true;
  for (const auto& [id, bias] : params.logit_bias) states_[find_edit(id)].bias = bias;
  if (num_tokens_until_stop_ > 0)
    for (const int32_t id : stop_ids) states_[find_edit(id)].banned = true;
  for (size_t i = 0; i < edits_.size(); ++i) update(i);
}

size_t LogitsProcessor::find_edit(int32_t token_id) {
  const auto [found, is_new] = index_.try_emplace(token_id, edits_.size());
  if (is_new) {
    edits_.push_back({.token_id = token_id});
    states_.emplace_back();
  }
  return found->second;
}

void LogitsProcessor::update(size_t edit_idx) {
  const State& state = states_[edit_idx];
  kernels::LogitEdit& edit = edits_[edit_idx];
  const bool in_output = state.num_output > 0;
  edit.repetition = state.in_prompt || in_output ? repetition_ : 1.0f;
  edit.offset =
      state.bias - frequency_ * static_cast<float>(state.num_output) - (in_output ? presence_ : 0.0f);
  if (state.banned) edit.offset = -std::numeric_limits<float>::infinity();
}

void LogitsProcessor::accept(int32_t token_id) {
  if (repetition_ != 1.0f || frequency_ != 0.0f || presence_ != 0.0f) {
    const size_t edit_idx = find_edit(token_id);
    ++states_[edit_idx].num_output;
    update(edit_idx);
  }
  if (num_tokens_until_stop_ > 0 && --num_tokens_until_stop_ == 0) allow_stop_tokens();
}

bool LogitsProcessor::bans(int32_t token_id) const {
  const auto found = index_.find(token_id);
  return found != index_.end() && states_[found->second].banned;
}

void LogitsProcessor::apply_mask(std::span<const uint32_t> words) {
  if (num_tokens_until_stop_ == 0) return;
  for (size_t i = 0; i < words.size(); ++i)
    for (uint32_t rest = words[i]; rest != 0; rest &= rest - 1)
      if (!bans(static_cast<int32_t>(i * 32) + std::countr_zero(rest))) return;
  num_tokens_until_stop_ = 0;
  allow_stop_tokens();
}

void LogitsProcessor::allow_stop_tokens() {
  for (size_t i = 0; i < edits_.size(); ++i) {
    states_[i].banned = false;
    update(i);
  }
}

}  // namespace attend
