// Errors: one exception type, with a code that the server maps to a status and the commands to an exit code.
//
// A message names the thing, its value, what would be accepted, and who refused:
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
  kInvalidArgument,  // the caller passed something that no configuration accepts
  kUnsupported,      // valid, but not with this backend, device, model or build
  kNotFound,         // a file, a tensor, a name
  kCorruptFile,      // a file that contradicts its own format
  kOutOfMemory,      // memory or KV pool exhausted; the message gives needed and free
  kDevice,           // a device call failed
  kInternal,         // a bug in attend
};

// "invalid_argument", "unsupported", ...
std::string_view to_string(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// Throws Error with the parts streamed one after another.
template <class... Parts>
[[noreturn]] void fail(ErrorCode code, const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw Error(code, message.str());
}

// Throws Error(kInvalidArgument) unless `ok`. The parts are formatted only on failure, so a check may stand
// on a hot path.
template <class... Parts>
void require(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail(ErrorCode::kInvalidArgument, parts...);
}

// Throws Error(kInternal) unless `ok`: for what only a bug in attend can break.
template <class... Parts>
void ensure(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail(ErrorCode::kInternal, parts...);
}

}  // namespace attend
#pragma GCC visibility pop
