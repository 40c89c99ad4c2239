// Errors that clients see.
#include "attend/serve/protocols/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <filesystem>
#include <new>
#include <system_error>

namespace attend::serve {
namespace {

template <class Exception>
ApiError error_of(const Exception& exception) {
  return to_api_error(std::make_exception_ptr(exception));
}

TEST(ApiErrors, OfTheRequestKeepTheirMessage) {
  const ApiError error = error_of(Error(ErrorCode::kInvalidArgument, "top_k -2: at least 1"));
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.message, "top_k -2: at least 1");
  EXPECT_EQ(error_of(std::bad_alloc()).status, 503);
}

TEST(ApiErrors, OfTheServersFilesNameNoPath) {
  const std::filesystem::filesystem_error missing("cannot open", "/models/secret",
                                                  std::make_error_code(std::errc::no_such_file_or_directory));
  for (const ApiError& error :
       {error_of(Error(ErrorCode::kNotFound, "/models/secret: no such file")),
        error_of(Error(ErrorCode::kCorruptFile, "/models/secret: was changed")), error_of(missing)}) {
    EXPECT_EQ(error.status, 500);
    EXPECT_THAT(error.message, testing::HasSubstr("the server's log has the reason"));
    EXPECT_THAT(error.message, testing::Not(testing::HasSubstr("secret")));
  }
}

}  // namespace
}  // namespace attend::serve
