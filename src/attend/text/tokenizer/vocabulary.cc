#include "attend/text/tokenizer/vocabulary.h"

#include <bit>
#include <functional>

namespace attend::tokenizer {
namespace {

uint64_t hash_token(std::string_view token) { return std::hash<std::string_view>{}(token); }

}  // namespace

Vocabulary::Vocabulary(const JsonNode& vocab, Form form) {
  form == Form::kScores ? read_scores(vocab) : read_ids(vocab);
  index_tokens();
}

void Vocabulary::read_scores(const JsonNode& vocab) {
  num_tokens_ = vocab.array_size();
  if (num_tokens_ == 0) vocab.corrupt("is empty");
  tokens_.reserve(num_tokens_);
  for (const Json& entry : vocab.value()) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      vocab.at(tokens_.size()).reject("a token and its score");
    tokens_.emplace_back(entry[0].get_ref<const std::string&>());
  }
}

void Vocabulary::read_ids(const JsonNode& vocab) {
  if (vocab.object_size() == 0) vocab.corrupt("is empty");
  const auto& entries = vocab.value().get_ref<const Json::object_t&>();
  // Ids are dense together with the added tokens; the vocabulary itself may have gaps, but only up to this
  // bound.
  const size_t max_tokens = 2 * entries.size() + 65536;
  num_tokens_ = entries.size();
  tokens_.reserve(entries.size());
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
}

void Vocabulary::index_tokens() {
  slots_.resize(std::bit_ceil(num_tokens_ + num_tokens_ / 2 + 2));
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (!tokens_[i]) continue;
    const uint64_t hash = hash_token(*tokens_[i]);
    slots_[find(*tokens_[i], hash)] = {static_cast<uint32_t>(hash >> 32), static_cast<int32_t>(i)};
  }
}

size_t Vocabulary::find(std::string_view token, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  for (; slots_[i].id != -1; i = (i + 1) & mask)
    if (slots_[i].hash == hash >> 32 && *tokens_[static_cast<size_t>(slots_[i].id)] == token) break;
  return i;
}

std::optional<int32_t> Vocabulary::id(std::string_view token) const {
  const int32_t id = slots_[find(token, hash_token(token))].id;
  return id == -1 ? std::nullopt : std::optional(id);
}

}  // namespace attend::tokenizer
