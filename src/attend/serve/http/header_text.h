// Texts of a request's first line and headers, as far as a library does not read them.
#pragma once

#include <string>
#include <string_view>

namespace attend::serve {

// What is no escape stays as it is.
std::string percent_decoded(std::string_view text);

// Proxies are sent http://host/path.
std::string without_origin(std::string_view target);

// For headers of answers and for logs: at most 200 bytes, of which only ASCII that can be seen, and spaces,
// is left.
std::string one_line(std::string_view text);

}  // namespace attend::serve
