#include "attend/bench/probes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "attend/bench/peak_loops.h"

namespace attend::bench {
namespace {

// A way that leaves bytes out would be a limit that nothing could reach.
TEST(ReadProbe, EveryWayReadsEveryByte) {
  std::vector<std::byte> memory(3 * kReadUnit);
  for (const ReadWay& way : read_ways()) {
    const float zero = read_loop(memory, way);
    for (size_t i = 0; i < memory.size(); i += 61) {
      memory[i] = std::byte{1};
      ASSERT_NE(read_loop(memory, way), zero) << way.num_streams << " streams, byte " << i;
      memory[i] = std::byte{0};
    }
  }
}

TEST(ReadProbe, EveryWayGivesARate) {
  const std::vector<std::byte> memory(9 * kReadUnit);
  for (const ReadWay& way : read_ways()) EXPECT_GT(read_bytes_per_second(memory, 1, way), 0);
}

TEST(ReadProbe, TheFastestMedianIsThatOfTheFastestWay) {
  const std::vector<std::vector<double>> rates = {{1, 9, 2}, {}, {3, 4, 3.5}};
  EXPECT_EQ(fastest_median(rates), 3.5);
}

}  // namespace
}  // namespace attend::bench
