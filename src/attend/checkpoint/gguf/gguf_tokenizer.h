// Tokenizer of a GGUF file as tokenizer.json and tokenizer_config.json.
#pragma once

#include <optional>

#include "attend/checkpoint/gguf/gguf_file.h"
#include "attend/checkpoint/parse_json.h"

namespace attend {

// Returns no value for a file without a tokenizer. Throws Error(kUnsupported) for another kind of model or
// pre-tokenizer, and Error(kCorruptFile) for inconsistent fields.
std::optional<Json> gguf_tokenizer(const GgufFile& file);

// Special tokens and chat templates.
Json gguf_tokenizer_config(const GgufFile& file);

}  // namespace attend
