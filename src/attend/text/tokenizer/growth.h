// How far the steps of a tokenizer.json may stretch a text. Unicode forms make at most eleven bytes of one,
// the byte-level alphabet two; a file whose steps multiply a text would take all memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "attend/base/error.h"

namespace attend::tokenizer {

// Bytes that a text may become, all of its parts together.
constexpr size_t max_grown_bytes(size_t text_bytes) { return (size_t{64} << 10) + 100 * text_bytes; }
// Bytes that one token may become while it is decoded.
constexpr size_t max_decoded_bytes(size_t token_bytes) { return std::max(size_t{64} << 10, token_bytes); }

// Throws Error(kUnsupported) for more bytes than `max_bytes`; `where` is the step that makes them.
inline void require_growth(size_t bytes, size_t max_bytes, const std::string& where) {
  if (bytes > max_bytes)
    fail(ErrorCode::kUnsupported, where, ": stretches a text to ", bytes, " bytes: at most ", max_bytes,
         ", which is more than any known tokenizer makes of it");
}

}  // namespace attend::tokenizer
