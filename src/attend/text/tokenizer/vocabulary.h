// Vocabulary of a tokenizer's model: tokens and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/checkpoint/json.h"

namespace attend::tokenizer {

class Vocabulary {
 public:
  // Form of the field `vocab`: an object of ids, or a list of tokens with scores (Unigram), in which
  // an id is a position.
  enum class Form { kIds, kScores };
  // `node`: the field `vocab`. Throws Error(kCorruptFile) if it is empty or ids are duplicate.
  explicit Vocabulary(const JsonNode& node, Form form = Form::kIds);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  std::optional<int32_t> id(std::string_view token) const;
  // Tokens indexed by id. Ids of added tokens may be missing.
  const std::vector<std::optional<std::string>>& tokens() const { return tokens_; }
  size_t size() const { return num_tokens_; }

 private:
  // Hash table of ids by token, with eight bytes per slot. A standard map needs about fifty bytes and more
  // cache misses.
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;  // -1: free slot
  };

  void read_ids(const JsonNode& vocab);
  void read_scores(const JsonNode& vocab);
  void index_tokens();
  // Returns the slot with the token, or the free slot for it.
  size_t find(std::string_view token, uint64_t hash) const;

  std::vector<std::optional<std::string>> tokens_;
  std::vector<Slot> slots_;  // size is a power of two, at most two thirds full
  size_t num_tokens_ = 0;
};

}  // namespace attend::tokenizer
