// Limits on how far the steps of a tokenizer.json may expand a text. Unicode normal forms make at most eleven
// bytes of one, the byte-level alphabet two. Without a limit, a file with steps that multiply a text could
// use all memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "attend/base/error.h"

namespace attend::tokenizer {

// Maximum size of an expanded text, all of its parts together.
constexpr size_t max_grown_bytes(size_t text_bytes) { return (size_t{64} << 10) + 100 * text_bytes; }
// Maximum size of one token during decoding.
constexpr size_t max_decoded_bytes(size_t token_bytes) { return std::max(size_t{64} << 10, token_bytes); }

// Throws Error(kUnsupported) for more than `max_bytes` bytes. `where`: name of the step.
inline void require_growth(size_t bytes, size_t max_bytes, const std::string& where) {
  if (bytes > max_bytes)
    fail(ErrorCode::kUnsupported, where, ": expands a text to ", bytes, " bytes: at most ", max_bytes,
         ", more than any known tokenizer needs");
}

}  // namespace attend::tokenizer
