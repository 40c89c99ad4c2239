#include "attend/base/log_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>

namespace attend {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Both ends of a pipe or a socket.
struct Ends {
  int read = -1, write = -1;

  static Ends pipe() {
    int both[2];
    EXPECT_EQ(::pipe(both), 0);
    return {both[0], both[1]};
  }
  static Ends socket() {
    int both[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, both), 0);
    return {both[0], both[1]};
  }
  // Returns the bytes that can be read now.
  std::string drain() const {
    ::fcntl(read, F_SETFL, O_NONBLOCK);
    std::string text(1 << 20, ' ');
    size_t size = 0;
    for (ssize_t got = 0; (got = ::read(read, text.data() + size, text.size() - size)) > 0;)
      size += static_cast<size_t>(got);
    text.resize(size);
    return text;
  }
  void close() const {
    ::close(read);
    ::close(write);
  }
};

class LogWriterTo : public testing::TestWithParam<Ends (*)()> {};

TEST_P(LogWriterTo, DropsLinesThatAreNotReadAndReportsTheirNumber) {
  const Ends ends = GetParam()();
  LogWriter writer(ends.write);
  const std::string line(1000, 'x');
  const auto begin = std::chrono::steady_clock::now();
  int num_written = 0, num_dropped = 0;
  for (int i = 0; i < 2000; ++i) ++(writer.write_line(line) ? num_written : num_dropped);
  // Waits for the reader once, not for each line.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_GT(num_written, 0);
  EXPECT_GT(num_dropped, 100);
  const std::string before = ends.drain();
  EXPECT_THAT(before, StartsWith(line + "\n"));
  EXPECT_TRUE(writer.write_line("afterwards"));
  const std::string after = ends.drain();
  EXPECT_THAT(before + after, HasSubstr("\nwarning: dropped log lines, since they were not read: " +
                                        std::to_string(num_dropped) + "\nafterwards\n"));
  EXPECT_TRUE(writer.write_line("once"));
  EXPECT_EQ(ends.drain(), "once\n");
  ends.close();
}

TEST_P(LogWriterTo, WritesLongLinesWhole) {
  const Ends ends = GetParam()();
  LogWriter writer(ends.write);
  const std::string line(20'000, 'y');
  EXPECT_TRUE(writer.write_line(line));
  EXPECT_EQ(ends.drain(), line + "\n");
  ends.close();
}

TEST_P(LogWriterTo, ContinuesWithoutAReader) {
  const auto previous = std::signal(SIGPIPE, SIG_IGN);
  const Ends ends = GetParam()();
  LogWriter writer(ends.write);
  ::close(ends.read);
  EXPECT_FALSE(writer.write_line("lost"));
  EXPECT_FALSE(writer.write_line("lost too"));
  ::close(ends.write);
  std::signal(SIGPIPE, previous);
}

INSTANTIATE_TEST_SUITE_P(Kinds, LogWriterTo, testing::Values(&Ends::pipe, &Ends::socket),
                         [](const auto& given) { return given.index == 0 ? "Pipe" : "Socket"; });

}  // namespace
}  // namespace attend
