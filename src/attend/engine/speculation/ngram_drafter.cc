#include "attend/engine/speculation/ngram_drafter.h"

#include <algorithm>

namespace attend {

std::span<const int32_t> find_continuation(std::span<const int32_t> tokens, int min_match, int max_match,
                                           int most) {
  const auto num_tokens = static_cast<int>(tokens.size());
  if (num_tokens <= min_match || most <= 0) return {};
  const int32_t* const end = tokens.data() + num_tokens;
  // Number of tokens before `place` that equal the tokens before `end`.
  const auto num_equal = [&](const int32_t* place) {
    const auto longest = static_cast<int>(std::min<std::ptrdiff_t>(max_match, place - tokens.data()));
    int num = 0;
    while (num < longest && place[-1 - num] == end[-1 - num]) ++num;
    return num;
  };
  const int32_t* best = nullptr;
  int best_match = 0, best_following = 0;
  // Searches backward from the end. A longer match is better; of equal ones, the one with more following
  // tokens.
  const int32_t last = end[-1];
  for (const int32_t* place = end - 1; place != tokens.data(); --place) {
    if (place[-1] != last) continue;
    const int match = num_equal(place);
    const auto following = static_cast<int>(std::min<std::ptrdiff_t>(most, end - place));
    if (match < min_match || match < best_match || (match == best_match && following <= best_following))
      continue;
    best = place;
    best_match = match;
    best_following = following;
    if (match == max_match && following == most) break;
  }
  if (best == nullptr) return {};
  return {best, static_cast<size_t>(best_following)};
}

void NgramDrafter::draft(const ScheduledStep& step) {
  int room = step.max_draft_tokens;
  for (const ScheduledRequest& part : step.requests) {
    const int most = std::min(part.num_draft_slots, room);
    if (most <= 0) continue;
    Request& request = *part.request;
    const std::span<const int32_t> found = find_continuation(request.tokens, min_match_, max_match_, most);
    request.draft.tokens.assign(found.begin(), found.end());
    room -= static_cast<int>(found.size());
  }
}

}  // namespace attend
