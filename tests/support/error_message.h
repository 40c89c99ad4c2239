// What a refusal says.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "attend/base/error.h"

namespace attend::testing_support {

// The message of the Error that `fn` throws; the test fails unless it has this code.
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
