#include "attend/serve/protocols/errors.h"

#include <new>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/engine/engine_control.h"
#include "attend/serve/json/json_text.h"
#include "attend/serve/protocols/anthropic/errors.h"
#include "attend/serve/protocols/random_id.h"

namespace attend::serve {
namespace {

// Clients do not learn paths of files. The log has the reason.
ApiError logged(const std::exception& error, std::string_view cause, std::string code) {
  try_log_warning("a request failed: ", error.what());
  return {500, std::string(cause) + "; the server's log has the reason", {}, std::move(code)};
}

ApiError to_api_error(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  if (dynamic_cast<const UnavailableError*>(&error)) return {503, error.what(), {}, "unavailable"};
  if (!known) return logged(error, "internal error", {});
  if (known->code() == ErrorCode::kNotFound || known->code() == ErrorCode::kCorruptFile)
    return logged(error, "a file of the server is missing or invalid", std::string(to_string(known->code())));
  return {http_status(known->code()), error.what(), {}, std::string(to_string(known->code()))};
}

}  // namespace

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
      return 400;
    case ErrorCode::kOutOfMemory:
      return 503;
    default:
      return 500;
  }
}

ApiError to_api_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ApiError& rejection) {
    return rejection;
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& other) {
    return to_api_error(other);
  }
}

ApiError queue_full(int max_waiting) {
  return {503,
          "the request queue is full: " + std::to_string(max_waiting) +
              " requests wait, the limit of --max-queued-requests",
          {},
          "queue_full"};
}

ApiError out_of_memory() { return {503, "out of memory", {}, "out_of_memory"}; }

std::string error_reply(const ApiError& error) {
  const auto type = [&]() -> std::string_view {
    if (error.status == 401 || error.status == 403) return "authentication_error";
    if (error.status == 404) return "not_found_error";
    if (error.status == 503) return "overloaded_error";
    return error.status >= 500 ? "internal_error" : "invalid_request_error";
  };
  JsonText json;
  json.begin_object().key("error").begin_object();
  json.key("message").text(error.message).key("type").text(type());
  json.key("param").text_or_null(error.param).key("code").text_or_null(error.code);
  return json.end_object().end_object().take();
}

ErrorResponse error_response(std::string_view path, const ApiError& error, std::string_view request_id) {
  if (is_anthropic_path(path)) return anthropic_error_response(error, request_id);
  return {error.status, error_reply(error)};
}

void answer_error(Exchange& exchange, std::string_view path, const ApiError& error,
                  std::string_view request_id, Headers headers) {
  if (error.status == 503) headers.emplace_back("Retry-After", "1");
  if (error.status == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
  std::string own_id;  // of a request that is answered before it has an id
  if (request_id.empty() && is_anthropic_path(path)) {
    own_id = random_id("req_");
    for (const char* name : {"request-id", "x-request-id"}) headers.emplace_back(name, own_id);
    request_id = own_id;
  }
  ErrorResponse response = error_response(path, error, request_id);
  exchange.reply(response.status, kJsonType, std::move(response.body), std::move(headers));
}

}  // namespace attend::serve
