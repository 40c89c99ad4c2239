// LogWriter: writes log lines to a descriptor that may not be read, without blocking its callers for long.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

namespace attend {

// A line that the descriptor does not accept is dropped, and the next line that it accepts follows the number
// of dropped lines. Thread-safe. Allocates no memory.
class LogWriter {
 public:
  // `fd` stays open. It is not switched to non-blocking mode, since other processes may share it.
  explicit LogWriter(int fd) : fd_(fd) {}

  // Writes the line and a line feed. Returns false if the line was dropped.
  bool write_line(std::string_view line) noexcept;

 private:
  // Returns the number of bytes that were written.
  size_t write_bytes(std::string_view bytes) noexcept;
  bool write_whole_line(std::string_view line) noexcept;
  bool report_dropped_lines() noexcept;

  int fd_;
  std::mutex mutex_;
  bool is_stalled_ = false;   // the last write did not succeed, so the next one does not wait
  bool inside_line_ = false;  // only part of the last line was written
  int64_t num_dropped_ = 0;   // lines since the last one that was written
};

}  // namespace attend
