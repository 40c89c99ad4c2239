// The vocabulary of a tokenizer's model: tokens and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attend/model/json.h"

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
  const std::unordered_map<std::string_view, int32_t>& ids() const { return ids_; }
  size_t size() const { return ids_.size(); }

 private:
  std::vector<std::optional<std::string>> tokens_;
  std::unordered_map<std::string_view, int32_t> ids_;  // views of tokens_
};

}  // namespace attend::tokenizer
