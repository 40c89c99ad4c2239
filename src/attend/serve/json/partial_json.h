// JSON that was cut off, such as the arguments of a call that max_tokens ends.
#pragma once

#include <string>
#include <string_view>

namespace attend::serve {

// Returns the start of a JSON object or array without its incomplete last member, closed by brackets: {"a":
// 1, "b": "x gives {"a": 1}. A number at the end is complete: parsers of calls emit numbers and words as a
// whole. A complete value is returned unchanged, and {} if there is no bracket.
std::string complete_json(std::string_view text);

}  // namespace attend::serve
