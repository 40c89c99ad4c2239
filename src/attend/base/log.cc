#include "attend/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <string_view>

#include "attend/base/printable.h"

namespace attend {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// Returns true if the user requests plain text (https://no-color.org) or the terminal does not support
// colors.
bool no_color_requested() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return (no_color != nullptr && *no_color != '\0') ||
         (terminal != nullptr && std::string_view(terminal) == "dumb");
}

spdlog::logger& logger() {
  static const auto instance = [] {
    const auto mode = no_color_requested() ? spdlog::color_mode::never : spdlog::color_mode::automatic;
    // Not registered by name, since a program that uses the library may have a logger named attend.
    auto made = std::make_unique<spdlog::logger>("attend",
                                                 std::make_shared<spdlog::sinks::stderr_color_sink_mt>(mode));
    made->set_pattern("%^%l%$: %v");
    return made;
  }();
  return *instance;
}

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }
void log_line(LogLevel level, std::string_view message) {
  logger().log(to_spdlog(level), "{}", printable(message));
}

}  // namespace attend
