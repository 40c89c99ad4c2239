// Text of tokens that may be followed by others.
#pragma once

#include <span>
#include <string>

#include "attend/text/tokenizer/pipeline/decoder.h"

namespace attend::tokenizer {

struct OpenText {
  std::string settled;  // text that does not depend on the next tokens
  std::string held;     // rest of the text if no token follows
};
OpenText decode_open(const Decoder& decoder, std::span<const std::string* const> tokens);

// Removes U+FFFD from the end of a text.
void drop_incomplete_end(std::string& text);

}  // namespace attend::tokenizer
