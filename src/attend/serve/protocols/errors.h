// Errors of a request as sent to its client. Threads pass errors as std::exception_ptr; the I/O thread
// converts them to ApiError and sends the reply.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "attend/base/error.h"
#include "attend/serve/http/exchange.h"
#include "attend/serve/json/fields.h"

namespace attend::serve {

inline constexpr std::string_view kJsonType = "application/json";

// Runs `task`. Returns the exception that it threw, or null.
template <class Task>
std::exception_ptr catch_error(Task&& task) noexcept {
  try {
    task();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

// Returns the status of an error of the engine: 400 if the request caused it, 503 without memory, otherwise
// 500.
int http_status(ErrorCode code);
// Converts an ApiError or any other exception to status and message.
ApiError to_api_error(const std::exception_ptr& error);

ApiError queue_full(int max_waiting);
ApiError out_of_memory();

// Returns OpenAI's format: {"error": {message, type, param, code}}.
std::string error_reply(const ApiError& error);

struct ErrorResponse {
  int status;
  std::string body;
};
// Returns the error in the format of the API that `path` belongs to. `request_id`: empty if unknown.
ErrorResponse error_response(std::string_view path, const ApiError& error, std::string_view request_id = {});
// Replies with the error. `headers`: in addition to those of the status.
void answer_error(Exchange& exchange, std::string_view path, const ApiError& error,
                  std::string_view request_id = {}, Headers headers = {});

}  // namespace attend::serve
