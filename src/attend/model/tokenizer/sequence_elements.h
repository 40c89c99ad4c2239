#pragma once

// tokenizer.json builds its normalizers, pre-tokenizers, post-processors and decoders alike: an element of
// type "Sequence" holds a list of others under a key, sequences among them.
#include <string_view>

#include "attend/model/json.h"

namespace attend::tokenizer {

// The list under `key` of a Sequence that stands in `depth` others; throws kUnsupported for more than 16 of
// them, before a file can exhaust the stack.
inline JsonNode sequence_elements(const JsonNode& sequence, std::string_view key, int depth) {
  constexpr int kMaxDepth = 16;
  const JsonNode list = sequence.at(key);
  if (depth >= kMaxDepth) list.unsupported("sequences are nested more than ", kMaxDepth, " deep");
  return list;
}

}  // namespace attend::tokenizer
