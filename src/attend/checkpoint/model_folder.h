// Explanations of model directories that lack files: other formats, adapters, caches.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace attend {

enum class MissingFile : uint8_t { kConfig, kWeights, kTokenizer, kChatTemplate };

// Suffix for errors about missing files of a model directory: names what is there instead, and what to do,
// such as " (model.gguf is there: pass this file instead of the folder to run it)". Empty if nothing is
// recognized.
std::string note_on_missing(MissingFile missing, const std::filesystem::path& directory);

}  // namespace attend
