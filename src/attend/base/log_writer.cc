#include "attend/base/log_writer.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>

namespace attend {
namespace {

// Time that a line waits for a reader that was not slow before.
constexpr int kPatienceMs = 100;

// A pipe that poll() reports as writable accepts PIPE_BUF bytes. A socket may accept fewer, so it is written
// without blocking.
ssize_t write_some(int fd, std::string_view bytes) {
  const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0 || errno != ENOTSOCK) return sent;
  return ::write(fd, bytes.data(), std::min<size_t>(bytes.size(), PIPE_BUF));
}

}  // namespace

size_t LogWriter::write_bytes(std::string_view bytes) noexcept {
  size_t num_written = 0;
  while (num_written < bytes.size()) {
    pollfd state{fd_, POLLOUT, 0};
    const int num_ready = ::poll(&state, 1, is_stalled_ ? 0 : kPatienceMs);
    if (num_ready < 0 && errno == EINTR) continue;
    is_stalled_ = num_ready <= 0;
    if (is_stalled_) break;
    const ssize_t written = write_some(fd_, bytes.substr(num_written));
    if (written < 0 && errno == EINTR) continue;
    is_stalled_ = written <= 0;
    if (is_stalled_) break;
    num_written += static_cast<size_t>(written);
  }
  return num_written;
}

bool LogWriter::write_whole_line(std::string_view line) noexcept {
  const size_t num_written = write_bytes(line);
  if (num_written > 0) inside_line_ = true;
  if (num_written < line.size()) return false;
  inside_line_ = write_bytes("\n") == 0;
  return !inside_line_;
}

bool LogWriter::report_dropped_lines() noexcept {
  if (inside_line_) inside_line_ = write_bytes("\n") == 0;
  if (inside_line_) return false;
  if (num_dropped_ == 0) return true;
  constexpr std::string_view kBefore = "warning: dropped log lines, since they were not read: ";
  std::array<char, kBefore.size() + 20> line;
  char* const digits = std::copy(kBefore.begin(), kBefore.end(), line.data());
  const char* const end = std::to_chars(digits, line.data() + line.size(), num_dropped_).ptr;
  if (!write_whole_line({line.data(), end})) return false;
  num_dropped_ = 0;
  return true;
}

bool LogWriter::write_line(std::string_view line) noexcept {
  const int saved_errno = errno;
  const std::lock_guard lock(mutex_);
  const bool is_written = report_dropped_lines() && write_whole_line(line);
  if (!is_written) ++num_dropped_;
  errno = saved_errno;
  return is_written;
}

}  // namespace attend
