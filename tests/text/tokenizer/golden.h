// Data that scripts/make_tokenizer_goldens.py wrote with the `tokenizers` library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attend::testing {

// Names of the layouts: folders of tests/data/tokenizers.
const std::vector<std::string>& golden_layouts();

// Returns "<source>/tests/data/tokenizers/<layout>".
std::string golden_folder(const std::string& layout);

// Texts that every layout encodes.
const std::vector<std::string>& golden_texts();

struct GoldenCase {
  bool encodes = true;  // false: the ids are not the encoding of a text
  std::string text;
  std::vector<int32_t> ids;  // without special tokens
  std::string skip;          // decode(ids) without special tokens
  std::string keep;          // decode(ids) with special tokens
};

struct Golden {
  std::vector<int32_t> before;  // ids that add_special_tokens inserts before and after the text
  std::vector<int32_t> after;
  std::vector<GoldenCase> cases;
};

Golden read_golden(const std::string& layout);

// Answer after a prompt, and its text after each of its ids. Written by scripts/make_stream_goldens.py.
struct StreamCase {
  std::vector<int32_t> prompt, ids;
  bool skip = true;                 // without special tokens
  std::vector<std::string> chunks;  // text that each id settles
  std::vector<std::string> rest;    // text after each id that further ids may change
};

std::vector<StreamCase> read_stream_cases(const std::string& layout);

}  // namespace attend::testing
