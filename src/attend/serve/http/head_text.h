// Text of HTTP request and response heads: the parsing that Boost.Beast does not do, and all of the writing.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attend::serve {

// Decodes %XX escapes. Invalid escapes are kept as they are.
std::string percent_decoded(std::string_view text);

// Removes the origin of an absolute target: proxies send http://host/path.
std::string without_origin(std::string_view target);

// Returns the host and port of an absolute target, or an empty text.
std::string_view parse_host(std::string_view target);

// Returns the decoded path of a target, without its query.
std::string path_of(std::string_view target);

// Returns text for response headers and logs: at most 200 bytes, reduced to printable ASCII and spaces.
std::string one_line(std::string_view text);

// Returns the status line and headers of a response. An empty `content_type` or `allowed_origin` omits its
// headers.
std::string answer_head(int status, std::string_view content_type,
                        const std::vector<std::pair<std::string, std::string>>& headers,
                        std::string_view allowed_origin, bool keep_alive);

}  // namespace attend::serve
