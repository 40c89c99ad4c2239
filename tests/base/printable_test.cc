#include "attend/base/printable.h"

#include <gtest/gtest.h>

#include "attend/base/log.h"

namespace attend {
namespace {

TEST(Printable, EscapesControlCharactersOnly) {
  EXPECT_EQ(printable("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(printable("\x1b[2J\r\x7f\b"), "?[2J???");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m \xc2\xa0 \xc3\xa9 \xe2\x82\xac"),
            "?31m \xc2\xa0 \xc3\xa9 \xe2\x82\xac");
  EXPECT_EQ(printable("\xc2"), "\xc2");
}

TEST(Printable, EscapesLogLines) {
  testing::internal::CaptureStderr();
  log_warning("\x1b[2J");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning: ?[2J\n");
}

TEST(Elide, CutsTheMiddleAtCharacterBoundaries) {
  EXPECT_EQ(elide("short", 5), "short");
  EXPECT_EQ(elide("0123456789", 4), "01 [... 6 bytes ...] 89");
  EXPECT_EQ(elide("a\xc3\xa9\xc3\xa9\xc3\xa9z", 4), "a [... 6 bytes ...] z");
}

}  // namespace
}  // namespace attend
