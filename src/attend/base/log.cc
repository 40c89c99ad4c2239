#include "attend/base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>

#include "attend/base/log_writer.h"
#include "attend/base/printable.h"

namespace attend {
namespace {

struct Level {
  std::string_view name, color;  // color: escape sequence of a terminal
};

constexpr Level describe(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return {"debug", "\033[36m"};
    case LogLevel::kInfo:
      return {"info", "\033[32m"};
    case LogLevel::kWarning:
      return {"warning", "\033[33m\033[1m"};
    case LogLevel::kError:
      return {"error", "\033[31m\033[1m"};
  }
  return {"info", "\033[32m"};
}

// Returns false if stderr is no terminal, if the user requests plain text (https://no-color.org), or if the
// terminal does not support colors.
bool has_colors() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && (no_color == nullptr || *no_color == '\0') && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

std::atomic<LogLevel> lowest_level = LogLevel::kInfo;

LogWriter& writer() {
  // Never destroyed, since threads may log while the process exits.
  static LogWriter& instance = *new LogWriter(STDERR_FILENO);
  return instance;
}

}  // namespace

void set_log_level(LogLevel level) { lowest_level = level; }

void log_line(LogLevel level, std::string_view message) {
  if (level < lowest_level) return;
  static const bool is_colored = has_colors();
  const auto [name, color] = describe(level);
  std::string line;
  if (is_colored) line += color;
  line += name;
  if (is_colored) line += "\033[m";
  writer().write_line(line + ": " + printable(message));
}

void log_record(std::string_view json) {
  if (LogLevel::kInfo >= lowest_level) writer().write_line(json);
}

}  // namespace attend
