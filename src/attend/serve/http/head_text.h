// Heads of requests and answers as text: as far as a library does not read those, and all of these.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attend::serve {

// What is no escape stays as it is.
std::string percent_decoded(std::string_view text);

// Proxies are sent http://host/path.
std::string without_origin(std::string_view target);

// For headers of answers and for logs: at most 200 bytes, of which only ASCII that can be seen, and spaces,
// is left.
std::string one_line(std::string_view text);

// The first line and the headers of an answer. `content_type`, `cors_origins`: empty: without such headers.
std::string answer_head(int status, std::string_view content_type,
                        const std::vector<std::pair<std::string, std::string>>& headers,
                        std::string_view cors_origins, bool keep_alive);

}  // namespace attend::serve
