// What went wrong with a request, as its client is told. An error that a thread hands to another is a
// std::exception_ptr; on the I/O thread it becomes an ApiError and the answer.
#pragma once

#include <exception>
#include <string>

#include "attend/serve/http/exchange.h"
#include "attend/serve/json/fields.h"

namespace attend::serve {

inline constexpr std::string_view kJson = "application/json";

// Runs `task` and gives what it threw; null: nothing.
template <class Task>
std::exception_ptr catch_error(Task&& task) noexcept {
  try {
    task();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

// The status and the words of an ApiError, or any other exception.
ApiError to_api_error(const std::exception_ptr& error);

ApiError queue_full(int max_waiting);
ApiError out_of_memory();

// {"error": {message, type, param, code}}
std::string error_reply(const ApiError& error);
void answer_error(Exchange& exchange, const ApiError& error);

}  // namespace attend::serve
