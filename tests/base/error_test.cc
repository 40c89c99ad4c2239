#include "attend/base/error.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace attend {
namespace {

// Part of a message that counts how often it is formatted.
struct Counted {
  int* num_formatted;
  friend std::ostream& operator<<(std::ostream& out, const Counted& part) {
    ++*part.num_formatted;
    return out << "counted";
  }
};

TEST(Error, HasTheCodeAndTheConcatenatedParts) {
  try {
    fail(ErrorCode::kUnsupported, "page_size ", 16, ": flashmla needs ", 64, " (decode)");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_STREQ(error.what(), "page_size 16: flashmla needs 64 (decode)");
    return;
  }
  FAIL() << "nothing was thrown";
}

TEST(Error, RequireThrowsInvalidArgumentAndEnsureInternal) {
  try {
    require(false, "x");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  }
  try {
    ensure(false, "x");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
  }
}

TEST(Error, FormatsNothingOnSuccess) {
  int num_formatted = 0;
  require(true, Counted{&num_formatted});
  ensure(true, Counted{&num_formatted});
  EXPECT_EQ(num_formatted, 0);
  EXPECT_THROW(require(false, Counted{&num_formatted}), Error);
  EXPECT_EQ(num_formatted, 1);
}

TEST(Error, EveryCodeHasADistinctName) {
  std::set<std::string_view> names;
  for (ErrorCode code :
       {ErrorCode::kInvalidArgument, ErrorCode::kUnsupported, ErrorCode::kNotFound, ErrorCode::kCorruptFile,
        ErrorCode::kOutOfMemory, ErrorCode::kDevice, ErrorCode::kInternal})
    names.insert(to_string(code));
  EXPECT_EQ(names.size(), 7u);
  EXPECT_FALSE(names.contains("unknown"));
}

}  // namespace
}  // namespace attend
