// Flags of llama.cpp's programs that attend does not take, and what there is instead.
#pragma once

#include <string_view>

namespace attend::cli {

// What to use instead of a flag of llama.cpp's, by any of its names ("-ngl", "--n-gpu-layers"); empty for
// other words.
std::string_view suggest_for_llama_cpp_flag(std::string_view name);

}  // namespace attend::cli
