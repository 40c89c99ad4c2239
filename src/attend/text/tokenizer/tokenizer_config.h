// Contents of tokenizer_config.json and special_tokens_map.json.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/text/tokenizer/added_tokens.h"

namespace attend::tokenizer {

struct TokenizerConfig {
  // Tokens of added_tokens_decoder with their ids, ordered by id.
  std::vector<std::pair<int32_t, AddedToken>> added_tokens;
  // Tokens with a role (bos_token, eos_token, ..., or a role of the model's own); all are special.
  std::vector<AddedToken> special_tokens;
  // Tokens of additional_special_tokens. Those that tokenizer.json declares with special false stay so.
  std::vector<AddedToken> additional_tokens;
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<std::string> pad_token;
  // True if bos_token is added before, or eos_token after, a text. tokenizer.json decides; these are read to
  // warn about differences.
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  // Name of the file, for messages.
  std::string file;
};

// Reads the files that the checkpoint has. Throws Error(kCorruptFile) if one is malformed.
TokenizerConfig read_tokenizer_config(const Checkpoint& checkpoint);

}  // namespace attend::tokenizer
