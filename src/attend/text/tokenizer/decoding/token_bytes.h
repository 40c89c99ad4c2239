// TokenBytes: bytes that tokens add to a text, according to a decoder.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "attend/text/tokenizer/pipeline/decoder.h"

namespace attend::tokenizer {

class TokenBytes {
 public:
  // `decoder` outlives this object.
  explicit TokenBytes(const Decoder& decoder);

  // Returns the bytes that `token` adds to a text that is not empty. They may be part of a character.
  std::string added_to_text(std::string_view token) const;
  // Returns the bytes of a token that adds the same bytes to every text, since it spells bytes.
  std::optional<std::string> spelled(std::string_view token) const;

  // Returns true for a token such as "<0xE2>" of a decoder with byte fallback.
  bool is_byte_token(std::string_view token) const;
  bool has_byte_tokens() const { return byte_fallback_; }

 private:
  const Decoder& decoder_;
  bool byte_level_;
  bool byte_fallback_;
};

}  // namespace attend::tokenizer
