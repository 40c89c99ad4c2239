#pragma once

// tokenizer.json builds its normalizers, pre-tokenizers, post-processors and decoders alike: an element of
// type "Sequence" holds a list of others under a key, sequences among them.
#include <string_view>

#include "attend/checkpoint/json.h"

namespace attend::tokenizer {

// The list under `key` of a Sequence that stands in `depth` others. `num_steps` counts the elements of all
// sequences of a field. Throws kUnsupported for more than 16 sequences in one another and 256 elements
// together, which is above any known file and below what would take long for every text.
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
