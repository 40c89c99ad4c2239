#include "attend/serve/protocols/anthropic/errors.h"

#include "attend/serve/json/json_text.h"

namespace attend::serve {
namespace {

constexpr int kOverloaded = 529;

std::string_view error_type(int status) {
  struct Row {
    int status;
    std::string_view type;
  };
  static constexpr Row kRows[] = {
      {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
      {413, "request_too_large"},    {429, "rate_limit_error"}, {kOverloaded, "overloaded_error"},
  };
  for (const Row& row : kRows)
    if (row.status == status) return row.type;
  return status >= 500 ? "api_error" : "invalid_request_error";
}

}  // namespace

bool is_anthropic_path(std::string_view path) {
  return path == kMessagesPath ||
         (path.starts_with(kMessagesPath) && path.substr(kMessagesPath.size()).starts_with('/'));
}

ErrorResponse anthropic_error_response(const ApiError& error, std::string_view request_id) {
  const int status = error.status == 503 ? kOverloaded : error.status;
  JsonText json;
  json.begin_object().key("type").text("error").key("error").begin_object();
  json.key("type").text(error_type(status)).key("message");
  // Agents recognize a conversation that they must shorten by the start of Anthropic's message.
  if (error.code == "context_length_exceeded")
    json.text("prompt is too long: " + error.message);
  else
    json.text(error.message);
  if (!error.code.empty()) json.key("details").begin_object().key("error_code").text(error.code).end_object();
  json.end_object().key("request_id").text_or_null(request_id);
  return {status, json.end_object().take()};
}

}  // namespace attend::serve
