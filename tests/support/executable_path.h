// Paths of files that tests write.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

namespace attend::testing_support {

// Path in the folder for temporary files, unique to the running test, since tests run concurrently.
inline std::string executable_path(const std::string& name) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::string own = std::string(test->test_suite_name()) + "." + test->name() + "." + name;
  std::ranges::replace(own, '/', '_');
  return (std::filesystem::path(testing::TempDir()) / own).string();
}

}  // namespace attend::testing_support
