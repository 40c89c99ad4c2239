// Base64 of RFC 4648 with padding.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace attend::serve {

void append_base64(std::string_view bytes, std::string& text);
// Returns no value if `text` is not base64.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace attend::serve
