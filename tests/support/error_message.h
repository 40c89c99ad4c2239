// Messages of errors.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "attend/base/error.h"

namespace attend::testing_support {

// Returns the message of the Error that `fn` throws. The test fails unless the error has this code.
template <class Fn>
std::string error_message(ErrorCode code, Fn&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace attend::testing_support
