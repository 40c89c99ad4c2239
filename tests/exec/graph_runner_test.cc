#include "attend/exec/graph_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attend {
namespace {

using testing::ElementsAre;

TEST(DefaultGraphSizes, EndWithTheLargestBatch) {
  EXPECT_THAT(default_graph_sizes(1), ElementsAre(1));
  EXPECT_THAT(default_graph_sizes(5), ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(default_graph_sizes(32), ElementsAre(1, 2, 4, 8, 12, 16, 24, 32));
  EXPECT_EQ(default_graph_sizes(300).back(), 300);
}

TEST(GraphRunner, PadsToTheSmallestSizeThatHoldsTheBatch) {
  const GraphRunner graphs({1, 4, 8});
  EXPECT_EQ(graphs.padded_size(1), 1);
  EXPECT_EQ(graphs.padded_size(2), 4);
  EXPECT_EQ(graphs.padded_size(8), 8);
  EXPECT_EQ(graphs.padded_size(9), 9);
}

}  // namespace
}  // namespace attend
