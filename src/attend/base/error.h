// Errors: one exception type, with a code that the server maps to a status and commands to an exit code.
//
// A message names the thing, its value, what is accepted, and the component that rejected it:
//   "page_size 16: flashmla needs 64 (decode)"
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#pragma GCC visibility push(default)
namespace attend {

enum class ErrorCode {
  kInvalidArgument,  // an argument that no configuration accepts
  kUnsupported,      // valid, but not supported by this backend, device, model or build
  kNotFound,         // a missing file, tensor or name
  kCorruptFile,      // a file that contradicts its own format
  kOutOfMemory,      // memory or KV pool exhausted; the message states needed and free bytes
  kDevice,           // a device call failed
  kInternal,         // a bug in attend
};

// Returns "invalid_argument", "unsupported", ...
std::string_view to_string(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// Throws Error with the concatenated parts as message.
template <class... Parts>
[[noreturn]] void fail(ErrorCode code, const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw Error(code, message.str());
}

// Throws Error(kInvalidArgument) unless `ok`. The parts are formatted only on failure, so checks are cheap
// enough for hot paths.
template <class... Parts>
void require(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail(ErrorCode::kInvalidArgument, parts...);
}

// Throws Error(kInternal) unless `ok`, for conditions that only a bug in attend can violate.
template <class... Parts>
void ensure(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail(ErrorCode::kInternal, parts...);
}

}  // namespace attend
#pragma GCC visibility pop
