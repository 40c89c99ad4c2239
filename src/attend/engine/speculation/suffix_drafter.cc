#include "attend/engine/speculation/suffix_drafter.h"

#include <algorithm>

namespace attend {

SuffixDrafter::SuffixDrafter(const SuffixOptions& options, const Limits& limits)
    : options_(options), limits_(limits), shared_(options.max_tree_depth) {}

void SuffixDrafter::draft(const ScheduledStep& step) {
  int room = step.max_draft_tokens, budget = limits_.added_per_step;
  for (const ScheduledRequest& part : step.requests) {
    Request& request = *part.request;
    if (request.num_output() > 0) add_output(request, texts_[request.id]);
    const int most = std::min(part.num_draft_slots, room);
    if (most <= 0) continue;
    Text& text = texts_[request.id];
    add_own(request, text, budget);
    request.draft.tokens = predict(request, text, most).tokens;
    room -= static_cast<int>(request.draft.tokens.size());
  }
}

void SuffixDrafter::end(const Request& request) {
  const auto found = texts_.find(request.id);
  if (request.num_output() > 0)
    add_output(request, found == texts_.end() ? texts_[request.id] : found->second);
  if (const auto text = texts_.find(request.id); text != texts_.end()) {
    if (text->second.own) num_own_tokens_ -= text->second.own->num_tokens();
    texts_.erase(text);
  }
}

// A sequence that was removed while its request is running begins anew.
void SuffixDrafter::add_output(const Request& request, Text& text) {
  if (options_.max_cached_requests == 0) return;
  for (int end = std::max(text.shared_end, request.num_prompt); end < request.num_tokens(); ++end) {
    if (!shared_.has(text.shared_sequence)) {
      if (shared_.num_sequences() >= options_.max_cached_requests) shared_.remove_oldest();
      text.shared_sequence = shared_.begin();
    }
    shared_.append(text.shared_sequence, request.tokens[static_cast<size_t>(end)]);
    while (shared_.num_tokens() > limits_.shared_tokens) shared_.remove_oldest();
  }
  text.shared_end = request.num_tokens();
}

void SuffixDrafter::add_own(const Request& request, Text& text, int& budget) {
  if (!text.own) {
    text.own.emplace(options_.max_tree_depth);
    text.own->begin();
    text.own_end = std::max(0, request.num_prompt - limits_.prompt_tokens);
  }
  while (text.own_end < request.num_tokens() && budget > 0 && num_own_tokens_ < limits_.own_tokens) {
    text.own->append(0, request.tokens[static_cast<size_t>(text.own_end++)]);
    ++num_own_tokens_;
    --budget;
  }
}

SuffixPrediction SuffixDrafter::predict(const Request& request, const Text& text, int max_tokens) const {
  const SuffixLimits limits{.max_tokens = max_tokens,
                            .max_match_factor = options_.max_spec_factor,
                            .min_probability = options_.min_token_prob};
  SuffixPrediction own = text.own->predict(request.tokens, limits);
  SuffixPrediction shared = shared_.predict(request.tokens, limits);
  return shared.score > own.score ? shared : own;
}

}  // namespace attend
