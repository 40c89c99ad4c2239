#include "attend/text/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "attend/checkpoint/json.h"

namespace attend::tokenizer {
namespace {

constexpr std::string_view kRoles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
constexpr std::string_view kRoleLists[] = {"additional_special_tokens", "extra_special_tokens"};

// Reads a special token: its text, or an object with flags.
AddedToken read_special(const JsonNode& node) {
  AddedToken token;
  if (node.value().is_string()) {
    token.content = node.string();
  } else {
    token = read_added_token(node);
  }
  token.special = true;
  return token;
}

void read_added_tokens(const JsonNode& node, TokenizerConfig& config) {
  node.object_size();
  for (const auto& [key, value] : node.value().items()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0)
      node.corrupt("\"", key, "\" is not a token id");
    config.added_tokens.emplace_back(id, read_added_token(node.at(key)));
  }
  std::sort(config.added_tokens.begin(), config.added_tokens.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
}

void add_once(AddedToken token, std::vector<AddedToken>& tokens) {
  const bool known = std::any_of(tokens.begin(), tokens.end(),
                                 [&](const AddedToken& other) { return other.content == token.content; });
  if (!known && !token.content.empty()) tokens.push_back(std::move(token));
}

void set_role(std::string_view role, const std::string& content, TokenizerConfig& config) {
  if (role == "bos_token") config.bos_token = content;
  if (role == "eos_token") config.eos_token = content;
  if (role == "pad_token") config.pad_token = content;
}

}  // namespace

TokenizerConfig read_tokenizer_config(const Checkpoint& checkpoint) {
  TokenizerConfig config;
  std::vector<std::string_view> open_roles(std::begin(kRoles), std::end(kRoles));
  // The first file that names a role decides.
  for (const auto document : {CheckpointDocument::kTokenizerConfig, CheckpointDocument::kSpecialTokens}) {
    const std::optional<JsonNode> found = checkpoint.find(document);
    if (!found) continue;
    const JsonNode& root = *found;
    if (config.file.empty()) config.file = root.where();
    for (auto role = open_roles.begin(); role != open_roles.end();) {
      const auto node = root.find(*role);
      if (!node) {
        ++role;
        continue;
      }
      AddedToken token = read_special(*node);
      set_role(*role, token.content, config);
      add_once(std::move(token), config.special_tokens);
      role = open_roles.erase(role);
    }
    for (const std::string_view role : kRoleLists) {
      const auto list = root.find(role);
      if (!list) continue;
      // Newer files may have an object here, with more roles and their tokens.
      if (list->value().is_object())
        for (const auto& item : list->value().items())
          add_once(read_special(list->at(item.key())), config.special_tokens);
      if (!list->value().is_array()) continue;
      for (size_t i = 0; i < list->array_size(); ++i)
        add_once(read_special(list->at(i)), config.additional_tokens);
    }
    if (const auto tokens = root.find("added_tokens_decoder")) read_added_tokens(*tokens, config);
    if (const auto add = root.find("add_bos_token")) config.add_bos_token = add->boolean();
    if (const auto add = root.find("add_eos_token")) config.add_eos_token = add->boolean();
  }
  return config;
}

}  // namespace attend::tokenizer
