// main() of every test program. Its tests have a temporary folder of their own, so that programs and their
// shards may run at the same time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/test_files.h"

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const attend::test::TempDir folder;
  setenv("TEST_TMPDIR", folder.path().c_str(), /*overwrite=*/1);  // read by testing::TempDir()
  return RUN_ALL_TESTS();
}
