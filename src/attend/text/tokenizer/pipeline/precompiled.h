// PrecompiledTable: SentencePiece's table of normalizations ("precompiled_charsmap" of a tokenizer.json).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/checkpoint/json.h"

namespace attend::tokenizer {

class PrecompiledTable {
 public:
  // `node`: base64 of the table: the size in bytes of a trie, the trie, and the replacements, which end with
  // a zero byte each. Throws Error(kCorruptFile) if it is malformed.
  explicit PrecompiledTable(const JsonNode& node);

  // Returns the replacement of the shortest prefix of `text` in the table, or no value.
  std::optional<std::string_view> find(std::string_view text) const;

 private:
  // Units of a double array in the format of darts-clone (https://github.com/s-yata/darts-clone).
  std::vector<uint32_t> trie_;
  std::string replacements_;
};

}  // namespace attend::tokenizer
