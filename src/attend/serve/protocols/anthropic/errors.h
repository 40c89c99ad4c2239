// Errors in the format of Anthropic's API: {"type": "error", "error": {"type", "message", "details":
// {"error_code"}}, "request_id"}. An error without a code has no details.
#pragma once

#include <string>
#include <string_view>

#include "attend/serve/protocols/errors.h"

namespace attend::serve {

inline constexpr std::string_view kMessagesPath = "/v1/messages";
// Returns true for /v1/messages and the paths below it: their clients expect this format.
bool is_anthropic_path(std::string_view path);
// Status 503 becomes Anthropic's 529. `request_id`: empty if unknown.
ErrorResponse anthropic_error_response(const ApiError& error, std::string_view request_id);

}  // namespace attend::serve
