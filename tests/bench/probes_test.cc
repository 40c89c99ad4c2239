#include "attend/bench/probes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "attend/bench/peak_loops.h"

namespace attend::bench {
namespace {

// A method that skips bytes would measure a limit that no kernel can reach.
TEST(ReadProbe, EveryMethodReadsEveryByte) {
  std::vector<std::byte> memory(3 * kReadUnit);
  for (const ReadMethod& method : read_methods()) {
    const float zero = read_loop(memory, method);
    for (size_t i = 0; i < memory.size(); i += 61) {
      memory[i] = std::byte{1};
      ASSERT_NE(read_loop(memory, method), zero) << to_string(method) << ", byte " << i;
      memory[i] = std::byte{0};
    }
  }
}

TEST(ReadProbe, EveryMethodMeasuresARate) {
  const std::vector<std::byte> memory(9 * kReadUnit);
  for (const ReadMethod& method : read_methods()) EXPECT_GT(read_bytes_per_second(memory, 1, method), 0);
}

TEST(ReadProbe, FastestMethodHasTheHighestMedian) {
  const std::vector<std::vector<double>> rates = {{1, 9, 2}, {}, {3, 4, 3.5}};
  EXPECT_EQ(fastest_read_method(rates).way, 2u);
  EXPECT_EQ(fastest_read_method(rates).rate, 3.5);
}

TEST(ReadProbe, MethodsDescribeThemselves) {
  EXPECT_EQ(to_string(ReadMethod{}), "1 stream");
  EXPECT_EQ(to_string(ReadMethod{.num_streams = 2, .ahead = 2048, .chunk_bytes = 256 << 10, .once = true}),
            "2 streams, fetched 2 KiB ahead without reuse, interleaved by 256 KiB");
}

// Kernels cannot use bf16 pair instructions on f32 or float16 operands, so their rate is not a limit for
// them.
TEST(PeakProbe, Bfloat16PairsAreNoLimitForOtherDtypes) {
  for (DType operands : {DType::kF32, DType::kF16})
    EXPECT_NE(best_vectors(1, operands), Arithmetic::kAvx512Bf16) << operands;
}

}  // namespace
}  // namespace attend::bench
