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

// Returns the text without an incomplete character at its end. Byte tokens that only start a character are
// ignored, since the decoder would replace all bytes of their run by U+FFFD.
std::string decode_complete(const Decoder& decoder, std::span<const std::string* const> tokens);

}  // namespace attend::tokenizer
