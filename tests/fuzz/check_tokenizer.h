// Invariants of every tokenizer and every text.
#pragma once

#include <algorithm>

#include "attend/text/tokenizer/tokenizer.h"
#include "attend/text/tokenizer/utf8.h"
#include "tests/fuzz/fuzz.h"

namespace attend::fuzz {

inline void check_decode(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool skip_special_tokens) {
  const std::string whole = tokenizer.decode(ids, skip_special_tokens);
  expect(tokenizer::is_valid_utf8(whole));
  StreamDecoder stream(tokenizer, skip_special_tokens);
  std::string parts;
  for (const int32_t id : ids) {
    const std::string part = stream.push(id);
    expect(tokenizer::is_valid_utf8(part));
    parts += part;
  }
  expect(parts + stream.flush() == whole);
}

inline void check_text(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<int32_t> ids = tokenizer.encode(text);
  for (const int32_t id : ids) expect(id >= 0 && id < tokenizer.vocab_size());
  expect(tokenizer.encode(text) == ids);
  check_decode(tokenizer, ids, true);
  check_decode(tokenizer, ids, false);
}

}  // namespace attend::fuzz
