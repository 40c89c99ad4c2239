// BPE merges, compared with a naive implementation.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "attend/text/tokenizer/bpe/bpe_merge.h"
#include "attend/text/tokenizer/bpe/bpe_model.h"
#include "attend/text/tokenizer/bpe/pair_table.h"
#include "attend/text/tokenizer/utf8.h"
#include "attend/text/tokenizer/word_cache.h"

namespace attend::tokenizer {
namespace {

// Random merge rules over an alphabet. Equal texts have equal ids, whatever merges produced them.
struct RandomBpe {
  std::vector<std::string> tokens;
  std::map<std::string, int32_t> ids;
  std::vector<std::pair<std::string, std::string>> merges;

  RandomBpe(const std::vector<std::string>& alphabet, int num_merges, std::mt19937& random) {
    for (const std::string& token : alphabet) add(token);
    for (int i = 0; i < num_merges; ++i) {
      const std::string left = tokens[random() % tokens.size()];
      const std::string right = tokens[random() % tokens.size()];
      if (left.size() + right.size() > 24) continue;
      merges.emplace_back(left, right);
      add(left + right);
    }
  }

  void add(const std::string& token) {
    if (ids.emplace(token, static_cast<int32_t>(tokens.size())).second) tokens.push_back(token);
  }

  MergeRules rules() const {
    MergeRules rules(merges.size());
    for (const auto& [left, right] : merges) rules.add(ids.at(left), ids.at(right), ids.at(left + right));
    return rules;
  }

  // Applies one rule after another from the left.
  std::vector<int32_t> naive(std::vector<int32_t> symbols) const {
    std::map<std::pair<int32_t, int32_t>, size_t> ranks;
    for (size_t i = 0; i < merges.size(); ++i) ranks[{ids.at(merges[i].first), ids.at(merges[i].second)}] = i;
    for (;;) {
      size_t best = SIZE_MAX;
      size_t at = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto rank = ranks.find({symbols[i], symbols[i + 1]});
        if (rank != ranks.end() && rank->second < best) {
          best = rank->second;
          at = i;
        }
      }
      if (best == SIZE_MAX) return symbols;
      symbols[at] = ids.at(merges[best].first + merges[best].second);
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
  }
};

TEST(MergeSymbols, MatchesTheNaiveMergeAtAnyLength) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const RandomBpe bpe({"a", "b", "c", "d"}, 40, random);
    const MergeRules rules = bpe.rules();
    for (const size_t length : {0, 1, 2, 3, 5, 17, 47, 48, 49, 50, 120, 400}) {
      std::vector<int32_t> symbols(length);
      for (int32_t& symbol : symbols) symbol = static_cast<int32_t>(random() % 4);
      const std::vector<int32_t> expected = bpe.naive(symbols);
      merge_symbols(rules, symbols);
      ASSERT_EQ(symbols, expected) << "length " << length;
    }
  }
}

TEST(BpeModel, SplittingAWordDoesNotChangeItsTokens) {
  // Some pairs of characters never merge, so that words are split there. "x" and "é" are not in the
  // vocabulary.
  std::mt19937 random(4);
  for (int round = 0; round < 40; ++round) {
    const RandomBpe bpe({"a", "b", "c", "中", "▁"}, 12, random);
    nlohmann::json json = {{"type", "BPE"}, {"vocab", bpe.ids}, {"merges", bpe.merges}};
    json["vocab"]["<unk>"] = bpe.tokens.size();
    const bool has_unk = round % 2 == 0;
    const bool fuse_unk = round % 4 < 2;
    if (has_unk) json["unk_token"] = "<unk>";
    json["fuse_unk"] = fuse_unk;
    const std::string file = "test";
    const nlohmann::json parsed = nlohmann::json::parse(json.dump());
    const BpeModel model{JsonNode(parsed, file)};
    const auto unk = static_cast<int32_t>(bpe.tokens.size());
    for (int i = 0; i < 50; ++i) {
      std::string word;
      std::vector<int32_t> symbols;
      for (size_t length = random() % 60; length > 0; --length) {
        const size_t pick = random() % 12;
        if (pick >= 10) {
          word += pick == 10 ? "x" : "é";
          if (has_unk && !(fuse_unk && !symbols.empty() && symbols.back() == unk)) symbols.push_back(unk);
        } else {
          word += bpe.tokens[pick % 5];
          symbols.push_back(static_cast<int32_t>(pick % 5));
        }
      }
      for (int again = 0; again < 2; ++again) {  // the second encoding is read from the cache
        std::vector<int32_t> ids;
        model.encode(word, ids);
        ASSERT_EQ(ids, bpe.naive(symbols)) << word;
      }
    }
  }
}

TEST(PairTable, KeepsTheLastValueOfAPair) {
  PairTable table(1000);
  for (uint32_t i = 0; i < 1000; ++i) table.set(i, i * i, i + 5);
  table.set(7, 49, 1);
  EXPECT_EQ(table.get(7, 49), 1u);
  EXPECT_EQ(table.get(49, 7), PairTable::kNone);
  for (uint32_t i = 8; i < 1000; ++i) ASSERT_EQ(table.get(i, i * i), i + 5);
  EXPECT_EQ(PairTable().get(0, 0), PairTable::kNone);
}

TEST(WordCache, ReturnsCachedIdsUnlessTooLong) {
  WordCache cache;
  std::vector<int32_t> ids = {9, 1, 2, 3};
  cache.insert("word", ids, 1);
  std::vector<int32_t> found = {7};
  EXPECT_TRUE(cache.find("word", found));
  EXPECT_EQ(found, (std::vector<int32_t>{7, 1, 2, 3}));
  EXPECT_FALSE(cache.find("wore", found));
  cache.insert(std::string(WordCache::kMaxWordBytes + 1, 'a'), ids, 1);
  EXPECT_FALSE(cache.find(std::string(WordCache::kMaxWordBytes + 1, 'a'), found));
  ids.resize(WordCache::kMaxIds + 2);
  cache.insert("many", ids, 1);
  EXPECT_FALSE(cache.find("many", found));
  cache.insert("none", ids, ids.size());
  EXPECT_TRUE(cache.find("none", found));
}

}  // namespace
}  // namespace attend::tokenizer
