// Trees of drafted tokens: which candidates are kept, and in which order.
#include "attend/engine/speculation/draft_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

namespace attend {
namespace {

using testing::ElementsAre;

std::vector<TokenLogprob> tops(std::initializer_list<std::pair<int, double>> probabilities) {
  std::vector<TokenLogprob> tops;
  for (const auto& [id, probability] : probabilities)
    tops.push_back({id, static_cast<float>(std::log(probability))});
  return tops;
}

constexpr int kVocab = 1000;

TEST(DraftTree, KeepsTheMostLikelyPathsOfEachLevel) {
  DraftTree tree;
  tree.begin(2);
  tree.add_level(tops({{10, 0.6}, {20, 0.3}}), kVocab);
  ASSERT_EQ(tree.num_last_nodes(), 2);
  // Paths of 0.3, 0.18, 0.27, 0.003.
  tree.add_level(tops({{11, 0.5}, {12, 0.3}, {21, 0.9}, {22, 0.01}}), kVocab);
  ASSERT_EQ(tree.num_last_nodes(), 2);
  ASSERT_EQ(tree.nodes().size(), 4u);
  EXPECT_EQ(tree.nodes()[2].token, 11);
  EXPECT_EQ(tree.nodes()[2].parent, 0);
  EXPECT_EQ(tree.nodes()[3].token, 21);
  EXPECT_EQ(tree.nodes()[3].parent, 1);
  RequestDraft draft;
  tree.select(4, draft);  // without 12 and 22
  EXPECT_THAT(draft.tokens, ElementsAre(10, 11, 20, 21));
  EXPECT_THAT(draft.parents, ElementsAre(-1, 0, -1, 2));
  tree.select(100, draft);
  EXPECT_THAT(draft.tokens, ElementsAre(10, 11, 12, 20, 21, 22));
  EXPECT_THAT(draft.parents, ElementsAre(-1, 0, 0, -1, 3, 3));
}

TEST(DraftTree, TakesEarlierCandidatesOfEqualProbability) {
  DraftTree tree;
  tree.begin(2);
  tree.add_level(tops({{1, 0.5}, {2, 0.5}}), kVocab);
  tree.add_level(tops({{3, 1.0}, {4, 1.0}, {5, 1.0}, {6, 1.0}}), kVocab);
  RequestDraft draft;
  tree.select(3, draft);
  EXPECT_THAT(draft.tokens, ElementsAre(1, 3, 2));
  EXPECT_THAT(draft.parents, ElementsAre(-1, 0, -1));
}

TEST(DraftTree, IgnoresTopsWithoutATokenOrANumber) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                  kInf = std::numeric_limits<float>::infinity();
  DraftTree tree;
  tree.begin(3);
  tree.add_level(std::vector<TokenLogprob>{{7, -1.0f}, {-1, 0.0f}, {kVocab, -2.0f}}, kVocab);
  EXPECT_EQ(tree.num_last_nodes(), 1);
  tree.add_level(std::vector<TokenLogprob>{{8, kNan}, {9, -kInf}, {4, 0.5f}}, kVocab);
  EXPECT_EQ(tree.num_last_nodes(), 1);
  tree.add_level(std::vector<TokenLogprob>{{8, kNan}, {9, kNan}, {4, kNan}}, kVocab);
  EXPECT_EQ(tree.num_last_nodes(), 0);
  RequestDraft draft;
  tree.select(10, draft);
  EXPECT_THAT(draft.tokens, ElementsAre(7, 4));
}

TEST(DraftTree, CutsToThePathOfTheFirstTokens) {
  RequestDraft draft;
  draft.tokens = {10, 11, 12, 20};
  draft.parents = {-1, 0, 0, -1};
  draft.cut_to_chain();
  EXPECT_THAT(draft.tokens, ElementsAre(10, 11));
  EXPECT_TRUE(draft.parents.empty());
}

// Compares with all paths of a model whose probabilities depend on the last token.
TEST(DraftTree, SelectsTheMostLikelyTokensOfAWholeBeamSearch) {
  std::mt19937 random(1);
  for (int run = 0; run < 200; ++run) {
    const int topk = 1 + static_cast<int>(random() % 4), num_levels = 1 + static_cast<int>(random() % 5),
              num_tokens = 1 + static_cast<int>(random() % 24);
    std::vector<std::vector<TokenLogprob>> next(50);  // by token
    for (auto& row : next) {
      std::set<int> ids;
      while (std::ssize(ids) < topk) ids.insert(static_cast<int>(random() % 50));
      for (const int id : ids) row.push_back({id, -0.1f * static_cast<float>(random() % 40)});
      std::ranges::stable_sort(row, std::greater<>(), &TokenLogprob::logprob);
    }
    DraftTree tree;
    tree.begin(topk);
    // Paths as token sequences with their scores, in the order of candidates.
    struct Path {
      std::vector<int32_t> tokens;
      float score;
    };
    std::vector<Path> all, beam = {{{0}, 0.0f}};
    for (int level = 1; level <= num_levels; ++level) {
      std::vector<TokenLogprob> tops;
      std::vector<Path> paths;
      for (const Path& path : beam)
        for (const TokenLogprob& top : next[static_cast<size_t>(path.tokens.back())]) {
          tops.push_back(top);
          paths.push_back(path);
          paths.back().tokens.push_back(top.token_id);
          paths.back().score += top.logprob;
        }
      tree.add_level(tops, kVocab);
      all.insert(all.end(), paths.begin(), paths.end());
      std::ranges::stable_sort(paths, std::greater<>(), &Path::score);
      paths.resize(std::min(paths.size(), static_cast<size_t>(topk)));
      beam = paths;
    }
    std::ranges::stable_sort(all, std::greater<>(), &Path::score);
    all.resize(std::min(all.size(), static_cast<size_t>(num_tokens)));
    std::multiset<std::vector<int32_t>> expected, drafted;
    for (const Path& path : all) expected.insert({path.tokens.begin() + 1, path.tokens.end()});
    RequestDraft draft;
    tree.select(num_tokens, draft);
    std::vector<std::vector<int32_t>> paths;
    for (size_t i = 0; i < draft.tokens.size(); ++i) {
      ASSERT_LT(draft.parents[i], static_cast<int>(i));
      paths.push_back(draft.parents[i] < 0 ? std::vector<int32_t>()
                                           : paths[static_cast<size_t>(draft.parents[i])]);
      paths.back().push_back(draft.tokens[i]);
      drafted.insert(paths.back());
    }
    EXPECT_EQ(drafted, expected);
  }
}

}  // namespace
}  // namespace attend
