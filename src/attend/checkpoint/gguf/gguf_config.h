// Metadata of a GGUF file as config.json and generation_config.json.
#pragma once

#include <span>

#include "attend/checkpoint/gguf/gguf_file.h"
#include "attend/checkpoint/parse_json.h"

namespace attend {

// `files`: all parts of a split file; the first one has the metadata. Throws Error(kUnsupported) for another
// architecture, and Error(kCorruptFile) for a field that is missing or has another type.
Json gguf_config(std::span<const GgufFile> files);

// Returns the ids of all tokens that end a text or a turn.
std::vector<int64_t> gguf_end_tokens(const GgufFile& file);

}  // namespace attend
