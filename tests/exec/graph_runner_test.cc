#include "attend/exec/graph_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attend {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

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

TEST(VerifyGraphSizes, HoldPowersOfTwoTokensPerRequestAndTheMost) {
  const std::vector<int> decode_sizes = {1, 2, 4};
  EXPECT_THAT(verify_graph_sizes(decode_sizes, 2, 12, 512),
              ElementsAre(StepSize{1, 2, 2}, StepSize{1, 4, 4}, StepSize{1, 8, 8}, StepSize{1, 12, 12},
                          StepSize{2, 4, 3}, StepSize{2, 8, 7}, StepSize{2, 16, 12}, StepSize{2, 24, 12}));
  EXPECT_THAT(verify_graph_sizes(decode_sizes, 4, 4, 8),
              ElementsAre(StepSize{1, 2, 2}, StepSize{1, 4, 4}, StepSize{2, 4, 3}, StepSize{2, 8, 4},
                          StepSize{4, 8, 4}))
      << "at most 8 tokens";
  EXPECT_THAT(verify_graph_sizes(decode_sizes, 4, 1, 512), IsEmpty()) << "no drafts";
}

// The size holds the step, a token for each added request, and any distribution of the tokens over requests.
TEST(GraphRunner, PadsAStepWithDraftsToTheSmallestSizeThatHoldsIt) {
  const std::vector<int> decode_sizes = {1, 2, 4};
  const GraphRunner graphs(decode_sizes, verify_graph_sizes(decode_sizes, 4, 6, 512));
  EXPECT_EQ(graphs.padded_verify_size(1, 2, 2), (StepSize{1, 2, 2}));
  EXPECT_EQ(graphs.padded_verify_size(1, 6, 6), (StepSize{1, 6, 6}));
  EXPECT_EQ(graphs.padded_verify_size(2, 5, 4), (StepSize{2, 8, 6}));
  EXPECT_EQ(graphs.padded_verify_size(3, 5, 3), (StepSize{4, 8, 5}));
  EXPECT_EQ(graphs.padded_verify_size(3, 8, 6), (StepSize{4, 16, 6}))
      << "8 tokens and that of an added request";
  EXPECT_EQ(graphs.padded_verify_size(5, 10, 6), StepSize());
  EXPECT_EQ(graphs.padded_verify_size(1, 9, 9), StepSize()) << "more tokens of a request than in a graph";
  for (int num_reqs = 1; num_reqs <= 4; ++num_reqs)
    for (int num_tokens = num_reqs + 1; num_tokens <= 6 * num_reqs; ++num_tokens) {
      const int most = std::min(6, num_tokens - num_reqs + 1);
      const StepSize size = graphs.padded_verify_size(num_reqs, num_tokens, most);
      EXPECT_GE(size.num_tokens, num_tokens + size.num_reqs - num_reqs);
      EXPECT_GE(size.max_seqlen_q, most);
    }
}

}  // namespace
}  // namespace attend
