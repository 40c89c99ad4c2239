// Flags of llama.cpp's programs that attend does not have, and their replacements.
#pragma once

#include <string_view>

namespace attend::cli {

// Returns the replacement of a flag of llama.cpp, by any of its names ("-ngl", "--n-gpu-layers"), or an empty
// text for other words.
std::string_view suggest_for_llama_cpp_flag(std::string_view name);

}  // namespace attend::cli
