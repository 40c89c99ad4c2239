#include "attend/text/tokenizer/tokenizer_impl.h"

#include <utility>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/checkpoint/json.h"

namespace attend {

using tokenizer::AddedToken;
using tokenizer::AddedTokens;
using tokenizer::TokenizerConfig;

Tokenizer::Impl::Impl(const JsonNode& root, const Checkpoint& checkpoint) {
  const std::string file = root.where();
  if (const auto version = root.find("version")) {
    if (version->string() != "1.0") version->unsupported("\"", version->string(), "\"; attend reads \"1.0\"");
  }
  for (const char* key : {"truncation", "padding"}) {
    if (root.find(key)) log_warning(file, ": ", key, ": ignored; encode() neither truncates nor pads");
  }
  model = tokenizer::make_token_model(root.at("model"));
  if (const auto node = root.find("normalizer")) normalizer = tokenizer::make_normalizer(*node);
  if (const auto node = root.find("pre_tokenizer")) pre_tokenizer = tokenizer::make_pre_tokenizer(*node);
  if (const auto node = root.find("post_processor")) post_processor = tokenizer::PostProcessor(*node);
  decoder = std::make_unique<tokenizer::Decoder>(root.find("decoder"));

  const TokenizerConfig config = tokenizer::read_tokenizer_config(checkpoint);
  next_id_ = static_cast<int32_t>(model->vocabulary().size());
  read_added_tokens(root, config);
  added_tokens.finish(normalizer.get(), file);
  list_tokens(file);
  name_tokens(config);
  for (const int32_t id : post_processor.added_ids()) {
    if (!find(id))
      fail(ErrorCode::kCorruptFile, file, ": post_processor: adds token ", id, ", which does not exist");
  }
}

void Tokenizer::Impl::read_added_tokens(const JsonNode& root, const TokenizerConfig& config) {
  if (const auto list = root.find("added_tokens")) {
    for (size_t i = 0; i < list->array_size(); ++i) {
      const JsonNode node = list->at(i);
      add_token(tokenizer::read_added_token(node), node.at("id").token_id(), node.where());
    }
  }
  for (const auto& [id, token] : config.added_tokens)
    add_token(token, id, config.file + ": added_tokens_decoder");
  for (const AddedToken& token : config.special_tokens) {
    const AddedTokens::Entry* known = added_tokens.find(token.content);
    if (known == nullptr) {
      add_token(token, std::nullopt, config.file);
    } else if (!known->token.special) {
      AddedToken special = known->token;
      special.special = true;
      add_token(std::move(special), known->id, config.file);
    }
  }
  for (const AddedToken& token : config.additional_tokens)
    if (added_tokens.find(token.content) == nullptr) add_token(token, std::nullopt, config.file);
}

void Tokenizer::Impl::add_token(AddedToken token, std::optional<int32_t> declared_id,
                                const std::string& where) {
  if (token.content.empty()) return;  // as in the `tokenizers` library
  std::optional<int32_t> id = token_id(token.content);
  // New tokens are numbered consecutively after the model's, regardless of the declared ids, since models are
  // trained with such ids. A different declared id is an error.
  if (!id) id = next_id_++;
  if (declared_id && declared_id != id) {
    fail(ErrorCode::kCorruptFile, where, ": token \"", token.content, "\" has id ", *declared_id,
         ", but it is ", *id,
         " by its position: ids of the model's vocabulary and the added tokens have no gaps");
  }
  added_tokens.add(std::move(token), *id);
}

void Tokenizer::Impl::list_tokens(const std::string& file) {
  const std::vector<std::optional<std::string>>& known = model->vocabulary().tokens();
  tokens.resize(std::max(known.size(), static_cast<size_t>(next_id_)));
  for (size_t i = 0; i < known.size(); ++i)
    if (known[i]) tokens[i] = {&*known[i], &*known[i], false};
  for (const AddedTokens::Entry& entry : added_tokens.entries()) {
    const auto id = static_cast<size_t>(entry.id);
    if (tokens[id].spelling != nullptr && *tokens[id].spelling != entry.token.content) {
      fail(ErrorCode::kCorruptFile, file, ": id ", id, " belongs to \"", *tokens[id].spelling, "\" and to \"",
           entry.token.content, "\"");
    }
    tokens[id] = {&entry.token.content, &entry.decoded, entry.token.special};
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].spelling == nullptr)
      fail(ErrorCode::kCorruptFile, file, ": no token has id ", i, "; ids are 0 to ", tokens.size() - 1);
  }
}

void Tokenizer::Impl::name_tokens(const TokenizerConfig& config) {
  const auto find_id = [&](const std::optional<std::string>& token) {
    return token ? token_id(*token) : std::nullopt;
  };
  bos_id = find_id(config.bos_token);
  eos_id = find_id(config.eos_token);
  pad_id = find_id(config.pad_token);
  // Transformers also follows tokenizer.json here; older versions did not for some classes.
  const std::vector<int32_t> around = post_processor.apply({}, true);
  const auto warn_unless = [&](std::string_view flag, std::optional<bool> wanted, bool is) {
    if (!wanted || *wanted == is) return;
    log_warning(config.file, ": ", flag, " ", *wanted ? "true" : "false",
                ": ignored; tokenizer.json's post_processor decides which tokens are added around a text");
  };
  if (bos_id)
    warn_unless("add_bos_token", config.add_bos_token, !around.empty() && around.front() == *bos_id);
  if (eos_id) warn_unless("add_eos_token", config.add_eos_token, !around.empty() && around.back() == *eos_id);
}

std::optional<int32_t> Tokenizer::Impl::token_id(std::string_view token) const {
  if (const AddedTokens::Entry* added = added_tokens.find(token)) return added->id;
  return model->vocabulary().id(token);
}

const Tokenizer::Impl::Token* Tokenizer::Impl::find(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < tokens.size() ? &tokens[static_cast<size_t>(id)] : nullptr;
}

}  // namespace attend
