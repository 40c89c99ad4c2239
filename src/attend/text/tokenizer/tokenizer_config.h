// What the files beside a tokenizer.json say: tokenizer_config.json and special_tokens_map.json.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/text/tokenizer/added_tokens.h"

namespace attend::tokenizer {

struct TokenizerConfig {
  // added_tokens_decoder: tokens with their ids, by id.
  std::vector<std::pair<int32_t, AddedToken>> added_tokens;
  // The tokens that a role names (bos_token, eos_token, ..., additional_special_tokens), special all of them.
  std::vector<AddedToken> special_tokens;
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<std::string> pad_token;
  // Whether a text is to have bos_token before and eos_token after it. tokenizer.json decides that; these are
  // read to tell where they differ.
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  // For messages.
  std::string file;
};

// Reads those of the two that the checkpoint has. Error(kCorruptFile) if one is malformed.
TokenizerConfig read_tokenizer_config(const Checkpoint& checkpoint);

}  // namespace attend::tokenizer
