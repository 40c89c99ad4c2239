// SuffixTree: counts and predictions equal those of a search through the sequences, and memory is bounded.
#include "attend/engine/speculation/suffix_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace attend {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Tokens = std::vector<int32_t>;

// The definition: sequences as they are.
class SlowTree {
 public:
  explicit SlowTree(int max_depth) : max_depth_(static_cast<size_t>(max_depth)) {}

  std::deque<Tokens> sequences;

  // Calls `visit` with the tokens after each occurrence of `run`, up to the depth.
  template <class Visit>
  void each(const Tokens& run, const Visit& visit) const {
    for (const Tokens& sequence : sequences)
      for (size_t at = 0; at + run.size() <= sequence.size(); ++at)
        if (std::equal(run.begin(), run.end(), sequence.begin() + static_cast<std::ptrdiff_t>(at)))
          visit(std::span(sequence).subspan(at + run.size()));
  }
  int count(const Tokens& run) const {
    int num = 0;
    if (run.size() <= max_depth_) each(run, [&](std::span<const int32_t>) { ++num; });
    return num;
  }
  // Counts of the tokens after `run`.
  std::map<int32_t, int> next(const Tokens& run) const {
    std::map<int32_t, int> counts;
    if (run.size() < max_depth_)
      each(run, [&](std::span<const int32_t> rest) {
        if (!rest.empty()) ++counts[rest[0]];
      });
    return counts;
  }
  std::set<Tokens> runs() const {
    std::set<Tokens> all;
    for (const Tokens& sequence : sequences)
      for (size_t at = 0; at < sequence.size(); ++at)
        for (size_t size = 1; size <= std::min(max_depth_, sequence.size() - at); ++size)
          all.insert(Tokens(sequence.begin() + static_cast<std::ptrdiff_t>(at),
                            sequence.begin() + static_cast<std::ptrdiff_t>(at + size)));
    return all;
  }

  // Smallest score of a greedy continuation, over all choices among equally frequent tokens.
  double lowest_score(Tokens run, double probability, double most, const SuffixLimits& limits) const {
    const std::map<int32_t, int> counts = next(run);
    int total = 0, largest = 0;
    for (const auto& [token, count] : counts) {
      total += count;
      largest = std::max(largest, count);
    }
    if (total == 0 || most < 1.0) return 0.0;
    probability *= static_cast<double>(largest) / total;
    if (probability < limits.min_probability) return 0.0;
    double lowest = 1e9;
    for (const auto& [token, count] : counts) {
      if (count < largest) continue;
      Tokens longer = run;
      longer.push_back(token);
      lowest = std::min(lowest, probability + lowest_score(longer, probability, most - 1.0, limits));
    }
    return lowest;
  }

  // Expects a greedy continuation of the last tokens, with the score that its counts give, which no other
  // number of matched tokens improves.
  void check(const Tokens& text, const SuffixPrediction& found, const SuffixLimits& limits) const {
    const auto last = [&](int num) { return Tokens(text.end() - num, text.end()); };
    const auto most = [&](int num) {
      return std::min<double>(limits.max_tokens, limits.max_match_factor * num);
    };
    const int longest = std::min(static_cast<int>(text.size()), static_cast<int>(max_depth_) - 1);
    for (int num = 1; num <= longest; ++num)
      EXPECT_GE(found.score + 1e-9, lowest_score(last(num), 1.0, most(num), limits)) << num << " matched";
    if (found.tokens.empty()) return;
    Tokens run = last(found.num_matched);
    double probability = 1.0, score = 0.0;
    for (const int32_t token : found.tokens) {
      const std::map<int32_t, int> counts = next(run);
      int total = 0, largest = 0;
      for (const auto& [id, count] : counts) {
        total += count;
        largest = std::max(largest, count);
      }
      ASSERT_TRUE(counts.contains(token));
      EXPECT_EQ(counts.at(token), largest);
      probability *= static_cast<double>(largest) / total;
      score += probability;
      run.push_back(token);
    }
    EXPECT_GE(probability + 1e-9, limits.min_probability);
    EXPECT_LE(static_cast<double>(found.tokens.size()), most(found.num_matched));
    EXPECT_NEAR(found.score, score, 1e-9);
  }

 private:
  size_t max_depth_;
};

Tokens predicted(const SuffixTree& tree, const Tokens& text, const SuffixLimits& limits) {
  return tree.predict(text, limits).tokens;
}

int64_t add(SuffixTree& tree, const Tokens& tokens) {
  const int64_t sequence = tree.begin();
  for (const int32_t token : tokens) tree.append(sequence, token);
  return sequence;
}

TEST(SuffixTree, FollowsTheMostFrequentContinuation) {
  SuffixTree tree(8);
  add(tree, {1, 2, 3, 4, 9});
  add(tree, {1, 2, 3, 5, 6});
  add(tree, {1, 2, 3, 5, 7});
  EXPECT_EQ(tree.count(Tokens{1, 2, 3}), 3);
  EXPECT_EQ(tree.count(Tokens{2, 3, 5}), 2);
  const SuffixPrediction found = tree.predict(Tokens{8, 1, 2}, {.max_tokens = 4, .max_match_factor = 2.0});
  EXPECT_THAT(found.tokens, ElementsAre(3, 5, 7)) << "nothing follows 7";
  EXPECT_EQ(found.num_matched, 2);
}

TEST(SuffixTree, EndsADraftAtAProbabilityAndAtALengthPerMatchedToken) {
  SuffixTree tree(8);
  add(tree, {1, 2, 3, 4, 9});
  add(tree, {1, 2, 3, 5, 6});
  add(tree, {1, 2, 3, 5, 7});
  EXPECT_THAT(predicted(tree, {1, 2}, {.max_tokens = 4, .max_match_factor = 4.0, .min_probability = 0.5}),
              ElementsAre(3, 5));
  EXPECT_THAT(predicted(tree, {1, 2}, {.max_tokens = 4, .max_match_factor = 4.0, .min_probability = 0.7}),
              ElementsAre(3));
  EXPECT_THAT(predicted(tree, {1, 2}, {.max_tokens = 4, .max_match_factor = 0.5}), ElementsAre(3));
  EXPECT_THAT(predicted(tree, {1, 2}, {.max_tokens = 0, .max_match_factor = 4.0}), IsEmpty());
  EXPECT_THAT(predicted(tree, {7}, {.max_tokens = 4}), IsEmpty()) << "nothing follows it";
  EXPECT_THAT(predicted(tree, {8}, {.max_tokens = 4}), IsEmpty());
  EXPECT_THAT(predicted(tree, {}, {.max_tokens = 4}), IsEmpty());
}

TEST(SuffixTree, PrefersTheLastAddedOfEquallyFrequentTokens) {
  SuffixTree tree(4);
  add(tree, {1, 2});
  add(tree, {1, 3});
  EXPECT_THAT(predicted(tree, {1}, {.max_tokens = 1}), ElementsAre(3));
  add(tree, {1, 2});
  EXPECT_THAT(predicted(tree, {1}, {.max_tokens = 1}), ElementsAre(2));
}

// Random sequences grow at the same time, and the oldest are removed, in any order of these calls.
TEST(SuffixTree, CountsAndPredictsLikeASearchThroughItsSequences) {
  std::mt19937 random(3);
  const auto below = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
  int num_found = 0, num_removed = 0;
  for (int round = 0; round < 150; ++round) {
    SCOPED_TRACE(round);
    const int max_depth = 2 + below(9), num_letters = 1 + below(4);
    SuffixTree tree(max_depth);
    SlowTree slow(max_depth);
    int64_t first = 0;
    const int num_calls = 20 + below(80);
    for (int call = 0; call < num_calls; ++call) {
      if (slow.sequences.empty() || below(12) == 0) {
        tree.begin();
        slow.sequences.emplace_back();
      }
      if (below(25) == 0) {
        tree.remove_oldest();
        slow.sequences.pop_front();
        ++first;
        ++num_removed;
        continue;
      }
      const int sequence = below(static_cast<int>(slow.sequences.size()));
      Tokens& text = slow.sequences[static_cast<size_t>(sequence)];
      // Half of the tokens repeat those of a distance, so that long runs occur several times.
      const auto distance = static_cast<size_t>(1 + round % 7);
      const int32_t token =
          text.size() >= distance && below(2) == 0 ? text[text.size() - distance] : below(num_letters);
      tree.append(first + sequence, token);
      text.push_back(token);
    }
    int64_t num_tokens = 0;
    for (const Tokens& text : slow.sequences) num_tokens += std::ssize(text);
    ASSERT_EQ(tree.num_tokens(), num_tokens);
    ASSERT_LE(tree.num_nodes(), 2 * num_tokens + 1);
    for (const Tokens& run : slow.runs())
      ASSERT_EQ(tree.count(run), slow.count(run)) << testing::PrintToString(run);
    for (int i = 0; i < 40; ++i) {
      Tokens text(static_cast<size_t>(below(14)));
      for (int32_t& token : text) token = below(num_letters + (i % 8 == 0));
      if (i % 2 == 0 && !slow.sequences.empty()) text = slow.sequences[random() % slow.sequences.size()];
      const SuffixLimits limits{.max_tokens = below(8),
                                .max_match_factor = 0.5 * (1 + below(4)),
                                .min_probability = 0.1 * below(8)};
      const SuffixPrediction found = tree.predict(text, limits);
      slow.check(text, found, limits);
      if (testing::Test::HasFailure()) return;
      num_found += found.tokens.empty() ? 0 : 1;
    }
  }
  EXPECT_GT(num_found, 1000) << "the test checks too little";
  EXPECT_GT(num_removed, 150) << "the test checks too little";
}

TEST(SuffixTree, IsEmptyAfterAllSequencesAreRemoved) {
  std::mt19937 random(1);
  SuffixTree tree(24);
  for (int i = 0; i < 20; ++i) {
    Tokens tokens(random() % 200);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 3);
    add(tree, tokens);
  }
  while (tree.num_sequences() > 0) tree.remove_oldest();
  EXPECT_EQ(tree.num_nodes(), 1) << "the root";
  EXPECT_EQ(tree.num_tokens(), 0);
  EXPECT_EQ(tree.count(Tokens{1}), 0);
}

}  // namespace
}  // namespace attend
