#include "attend/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attend {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Log : public testing::Test {
 protected:
  ~Log() override { set_log_level(LogLevel::kInfo); }
};

TEST_F(Log, WritesLevelAndMessageToStderrOnly) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  log_info("page size ", 16);
  log_warning("falls back to ", "torch_native");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("info: page size 16\n"));
  EXPECT_THAT(lines, HasSubstr("warning: falls back to torch_native\n"));
}

TEST_F(Log, DropsLinesBelowTheLevel) {
  set_log_level(LogLevel::kWarning);
  testing::internal::CaptureStderr();
  log_info("quiet");
  log_warning("loud");
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, Not(HasSubstr("quiet")));
  EXPECT_THAT(lines, HasSubstr("loud"));
}

TEST_F(Log, PrintsBracesLiterally) {
  testing::internal::CaptureStderr();
  log_info("{\"a\": {}}");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("{\"a\": {}}"));
}

TEST_F(Log, WritesRecordsWithoutALevel) {
  testing::internal::CaptureStderr();
  log_record(R"({"status":200})");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "{\"status\":200}\n");
  set_log_level(LogLevel::kWarning);
  testing::internal::CaptureStderr();
  log_record("{}");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace attend
