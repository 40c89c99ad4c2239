#include "attend/cli/standard_streams.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "attend/base/error.h"

namespace attend::cli {
namespace {

[[noreturn]] void reject_stdout(int error_number) {
  fail(ErrorCode::kInvalidArgument, "stdout: cannot be written: ", std::strerror(error_number));
}

}  // namespace

void open_standard_streams() {
  const bool has_stdout = fcntl(STDOUT_FILENO, F_GETFD) != -1;
  // open() returns the lowest free number.
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) == -1) (void)!open("/dev/null", O_RDWR);
  if (!has_stdout) fail(ErrorCode::kInvalidArgument, "stdout is closed: expected an open stream");
}

void write_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    reject_stdout(errno);
}

void flush_out() {
  errno = 0;
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout)) reject_stdout(errno != 0 ? errno : EIO);
}

size_t terminal_columns(int descriptor) {
  constexpr size_t kDefaultColumns = 80;
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* variable = std::getenv("COLUMNS");
  const unsigned long columns = variable == nullptr ? 0 : std::strtoul(variable, nullptr, 10);
  return columns > 0 ? columns : kDefaultColumns;
}

bool has_bars() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) && (terminal == nullptr || std::string_view(terminal) != "dumb");
}

}  // namespace attend::cli
