#include "attend/engine/speculation/ngram_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace attend {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<int32_t> continuation(const std::vector<int32_t>& tokens, int min_match, int max_match,
                                  int max_draft) {
  const std::span<const int32_t> found = find_continuation(tokens, min_match, max_match, max_draft);
  return {found.begin(), found.end()};
}

// Examples of vLLM's prompt lookup.
TEST(NgramDrafter, ProposesTheContinuationOfAnEarlierMatch) {
  EXPECT_THAT(continuation({1, 2, 3, 4, 2, 3}, 2, 3, 4), ElementsAre(4, 2, 3));
  EXPECT_THAT(continuation({1, 2, 3, 4, 2, 3}, 2, 3, 1), ElementsAre(4));
}

TEST(NgramDrafter, PrefersALongerMatchToALaterOne) {
  EXPECT_THAT(continuation({1, 2, 3, 70, 71, 9, 3, 80, 81, 1, 2, 3}, 1, 8, 2), ElementsAre(70, 71));
  EXPECT_THAT(continuation({1, 2, 3, 70, 71, 9, 3, 80, 81, 1, 2, 3}, 1, 1, 2), ElementsAre(80, 81))
      << "matches have at most one token";
}

TEST(NgramDrafter, PrefersTheLastOfEqualMatchesWithEnoughTokensAfterIt) {
  EXPECT_THAT(continuation({5, 6, 10, 11, 5, 6, 20, 21, 5, 6}, 2, 2, 2), ElementsAre(20, 21));
  // In a run of equal tokens, the last match is followed by one token and the first match by the most.
  EXPECT_THAT(continuation({7, 7, 7, 7, 7, 7}, 1, 3, 2), ElementsAre(7, 7));
  EXPECT_THAT(continuation({1, 7, 7, 7, 7}, 1, 2, 9), ElementsAre(7, 7));
}

TEST(NgramDrafter, FindsNothingWithoutALongEnoughRepetition) {
  EXPECT_THAT(continuation({1, 2, 3, 4}, 1, 4, 4), IsEmpty());
  EXPECT_THAT(continuation({1, 2, 9, 2}, 2, 4, 4), IsEmpty()) << "only one token repeats";
  EXPECT_THAT(continuation({}, 1, 4, 4), IsEmpty());
  EXPECT_THAT(continuation({1}, 1, 4, 4), IsEmpty());
  EXPECT_THAT(continuation({1, 1, 1}, 1, 4, 0), IsEmpty());
}

// The definition, evaluated at every position.
std::vector<int32_t> slow_continuation(const std::vector<int32_t>& tokens, int min_match, int max_match,
                                       int max_draft) {
  const auto size = static_cast<int>(tokens.size());
  for (int n = max_match; n >= min_match; --n) {
    int best = -1, best_following = 0;
    for (int end = n; end < size; ++end) {
      if (n > size || !std::equal(tokens.end() - n, tokens.end(), tokens.begin() + end - n)) continue;
      const int following = std::min(max_draft, size - end);
      if (following < best_following || (following == best_following && following < max_draft)) continue;
      best = end;
      best_following = following;
    }
    if (best >= 0) return {tokens.begin() + best, tokens.begin() + best + best_following};
  }
  return {};
}

TEST(NgramDrafter, MatchesItsDefinitionOnRandomTokens) {
  std::mt19937 random(1);
  int num_found = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<int32_t> tokens(random() % 40);
    const auto num_letters = 1 + random() % 5;
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % num_letters);
    const auto min_match = static_cast<int>(1 + random() % 4), max_draft = static_cast<int>(1 + random() % 9);
    const int max_match = min_match + static_cast<int>(random() % 6);
    const std::vector<int32_t> found = continuation(tokens, min_match, max_match, max_draft);
    ASSERT_EQ(found, slow_continuation(tokens, min_match, max_match, max_draft))
        << testing::PrintToString(tokens) << " " << min_match << " to " << max_match << ", " << max_draft;
    num_found += found.empty() ? 0 : 1;
  }
  EXPECT_GT(num_found, 1000);
}

// Each request of a step has its own number of slots; all requests share the step's limit of draft tokens.
TEST(NgramDrafter, DraftsForEachRequestWithSlots) {
  Request repeating, other, without_slots, last;
  repeating.tokens = {1, 2, 3, 4, 1, 2};
  other.tokens = {1, 2, 3, 4, 5, 6};
  without_slots.tokens = last.tokens = {5, 6, 7, 8, 5, 6};
  ScheduledStep step;
  step.requests = {{.request = &repeating, .num_new = 1, .num_draft_slots = 2},
                   {.request = &other, .num_new = 1, .num_draft_slots = 4},
                   {.request = &without_slots, .num_new = 1},
                   {.request = &last, .num_new = 1, .num_draft_slots = 4}};
  step.max_draft_tokens = 5;
  NgramDrafter drafter(1, 4);
  drafter.draft(step);
  EXPECT_THAT(repeating.draft.tokens, ElementsAre(3, 4));
  EXPECT_THAT(other.draft.tokens, IsEmpty());
  EXPECT_THAT(without_slots.draft.tokens, IsEmpty());
  EXPECT_THAT(last.draft.tokens, ElementsAre(7, 8, 5)) << "limited by the drafts of the other requests";
}

}  // namespace
}  // namespace attend
