#pragma once

// Elements of a "Sequence" in tokenizer.json. Normalizers, pre-tokenizers, post-processors and decoders share
// this structure: a list of elements under a key, which may be sequences too.
#include <string_view>

#include "attend/checkpoint/json.h"

namespace attend::tokenizer {

// Returns the list under `key` of a Sequence that is nested in `depth` others. `num_steps` counts the
// elements of all sequences of a field. Throws kUnsupported for more than 16 levels of nesting or 256
// elements in total; no known file exceeds these limits, and they bound the time per text.
inline JsonNode sequence_elements(const JsonNode& sequence, std::string_view key, int depth,
                                  size_t& num_steps) {
  constexpr int kMaxDepth = 16;
  constexpr size_t kMaxSteps = 256;
  const JsonNode list = sequence.at(key);
  if (depth >= kMaxDepth) list.unsupported("sequences are nested more than ", kMaxDepth, " deep");
  num_steps += list.array_size();
  if (num_steps > kMaxSteps) list.unsupported("has ", num_steps, " steps: at most ", kMaxSteps);
  return list;
}

}  // namespace attend::tokenizer
