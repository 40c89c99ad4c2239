// Log lines on stderr. stdout contains only results. A line is dropped if stderr is not read, or if its
// reader has exited; a program that ignores SIGPIPE continues.
#pragma once

#include <sstream>
#include <string_view>

namespace attend {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Drops messages below this level. Default: kInfo. Thread-safe.
void set_log_level(LogLevel level);
// Control characters, which a quoted file may contain, become '?'. Colored on a terminal, unless NO_COLOR is
// set or TERM is "dumb".
void log_line(LogLevel level, std::string_view message);
// Writes a line of JSON without a level, for programs that parse the log. Its level is kInfo.
void log_record(std::string_view json);

template <class... Parts>
void log_info(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  log_line(LogLevel::kInfo, message.str());
}

template <class... Parts>
void log_warning(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  log_line(LogLevel::kWarning, message.str());
}

// Like log_info(), for code that must not throw: the line is dropped if there is no memory for it.
template <class... Parts>
void try_log_info(const Parts&... parts) noexcept {
  try {
    log_info(parts...);
  } catch (...) {
  }
}

template <class... Parts>
void try_log_warning(const Parts&... parts) noexcept {
  try {
    log_warning(parts...);
  } catch (...) {
  }
}

}  // namespace attend
