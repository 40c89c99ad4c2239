#include "attend/bench/probes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "attend/bench/peak_loops.h"

namespace attend::bench {
namespace {

// A way that leaves bytes out would be a limit that nothing could reach.
TEST(ReadProbe, EveryMethodReadsEveryByte) {
  std::vector<std::byte> memory(3 * kReadUnit);
  for (const ReadMethod& way : read_methods()) {
    const float zero = read_loop(memory, way);
    for (size_t i = 0; i < memory.size(); i += 61) {
      memory[i] = std::byte{1};
      ASSERT_NE(read_loop(memory, way), zero) << to_string(way) << ", byte " << i;
      memory[i] = std::byte{0};
    }
  }
}

TEST(ReadProbe, EveryMethodMeasuresARate) {
  const std::vector<std::byte> memory(9 * kReadUnit);
  for (const ReadMethod& way : read_methods()) EXPECT_GT(read_bytes_per_second(memory, 1, way), 0);
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

// Halves of a float16 are no bfloat16: a limit of pairs could not be reached.
TEST(PeakProbe, PairsOfBfloat16AreNoLimitOfOtherNumbers) {
  for (DType operands : {DType::kF32, DType::kF16})
    EXPECT_NE(best_vectors(1, operands), Arithmetic::kAvx512Bf16) << operands;
}

}  // namespace
}  // namespace attend::bench
