// Collection and logging of selected kernels (kernels/common/kernel_choices.h).
#include "attend/kernels/common/kernel_choices.h"

#include <gtest/gtest.h>

#include <thread>

namespace attend::kernels {
namespace {

const KernelChoice kFirst{"linear", "8 x 64 -> 64, float32", "naive GEMM", "nothing else"};
const KernelChoice kSecond{"linear", "9 x 64 -> 64, float32", "naive GEMM", "nothing else"};

TEST(KernelChoices, AreCollectedOncePerCollector) {
  EXPECT_FALSE(records_choices());
  {
    const KernelChoices choices;
    EXPECT_TRUE(records_choices());
    record_choice(kFirst);
    std::thread([] { record_choice(kSecond); }).join();
    record_choice(kFirst);
    const KernelChoices late;
    record_choice(kSecond);
    EXPECT_EQ(choices.all(), (std::vector{kFirst, kSecond}));
    EXPECT_EQ(late.all(), std::vector{kSecond});
  }
  EXPECT_FALSE(records_choices());
}

// Runs in its own process, since logging cannot be disabled again.
TEST(KernelChoicesDeathTest, AreLoggedOnceEach) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        log_kernels();
        log_kernels();
        for (int i = 0; i < 3; ++i) record_choice(kFirst);
        std::_Exit(records_choices() ? 0 : 1);
      },
      testing::ExitedWithCode(0),
      "^[^\n]*kernel: linear of 8 x 64 -> 64, float32: naive GEMM \\(nothing else\\)\n$");
}

}  // namespace
}  // namespace attend::kernels
