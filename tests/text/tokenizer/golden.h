// The data that scripts/make_tokenizer_goldens.py wrote with the `tokenizers` library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attend::testing {

// Names of the layouts, which are folders of tests/data/tokenizers.
const std::vector<std::string>& golden_layouts();

// "<source>/tests/data/tokenizers/<layout>"
std::string golden_folder(const std::string& layout);

// The texts that every layout is tried on.
const std::vector<std::string>& golden_texts();

struct GoldenCase {
  bool encodes = true;  // false: the ids are not those of a text
  std::string text;
  std::vector<int32_t> ids;  // without special tokens
  std::string skip;          // decode(ids) without special tokens
  std::string keep;          // and with them
};

struct Golden {
  std::vector<int32_t> before;  // what add_special_tokens puts before and after the ids
  std::vector<int32_t> after;
  std::vector<GoldenCase> cases;
};

Golden read_golden(const std::string& layout);

}  // namespace attend::testing
