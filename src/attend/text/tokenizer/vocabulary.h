// The vocabulary of a tokenizer's model: tokens and their ids.
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
  // `node`: the field `vocab`, an object of ids. Error(kCorruptFile) when it is empty or its ids are not
  // distinct.
  explicit Vocabulary(const JsonNode& node);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  std::optional<int32_t> id(std::string_view token) const;
  // Tokens by id. The vocabulary may leave ids to the added tokens.
  const std::vector<std::optional<std::string>>& tokens() const { return tokens_; }
  size_t size() const { return num_tokens_; }

 private:
  // A table of ids by the hash of their tokens: eight bytes a slot, where a map of the library would take
  // fifty and as many misses of the cache.
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;  // -1: the slot is free
  };

  void index_tokens();
  // The slot that holds the token, or the free one where it would go.
  size_t find(std::string_view token, uint64_t hash) const;

  std::vector<std::optional<std::string>> tokens_;
  std::vector<Slot> slots_;  // a power of two, at most two thirds of them full
  size_t num_tokens_ = 0;
};

}  // namespace attend::tokenizer
