#include "attend/model/tokenizer/vocabulary.h"

namespace attend::tokenizer {

Vocabulary::Vocabulary(const JsonNode& vocab) {
  if (vocab.object_size() == 0) vocab.corrupt("is empty");
  const auto& entries = vocab.value().get_ref<const Json::object_t&>();
  // Ids are dense once the added tokens are there; the vocabulary alone may leave room for no more tokens
  // than that.
  const size_t max_tokens = 2 * entries.size() + 65536;
  ids_.reserve(entries.size());
  for (const auto& [token, value] : entries) {
    if (!value.is_number_unsigned()) vocab.at(token).token_id();
    const auto token_id = value.get<uint64_t>();
    if (token_id >= max_tokens) {
      vocab.corrupt("token \"", token, "\" has id ", token_id, ", far beyond the ", entries.size(),
                    " tokens");
    }
    if (token_id >= tokens_.size()) tokens_.resize(token_id + 1);
    if (tokens_[token_id]) {
      vocab.corrupt("id ", token_id, " belongs to \"", *tokens_[token_id], "\" and to \"", token, "\"");
    }
    tokens_[token_id] = token;
  }
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i]) ids_.emplace(*tokens_[i], static_cast<int32_t>(i));
  }
}

std::optional<int32_t> Vocabulary::id(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

}  // namespace attend::tokenizer
