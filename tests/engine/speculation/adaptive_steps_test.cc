// Numbers of draft steps that follow batch size and acceptance.
#include "attend/engine/speculation/adaptive_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "attend/base/error.h"
#include "tests/support/error_message.h"

namespace attend {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Reports `count` batches in which all drafts had this mean number of accepted tokens, or had the given share
// of their length.
void observe(AdaptiveSteps& steps, int batch_size, int count, double num_accepted) {
  for (int i = 0; i < count; ++i)
    steps.observe(batch_size, steps.steps(batch_size) > 0 ? std::optional(num_accepted) : std::nullopt);
}

TEST(AdaptiveSteps, StartWithTheStepsOfTheOptionsOrTheMiddleCandidate) {
  const AdaptiveSteps steps(default_adaptive_rows(), 5);
  EXPECT_EQ(steps.steps(1), 5);
  EXPECT_EQ(steps.steps(8), 1);
  EXPECT_EQ(steps.steps(32), 1);
  EXPECT_EQ(steps.steps(1000), 0);
}

TEST(AdaptiveSteps, UseTheNearestRow) {
  const AdaptiveSteps steps(
      {{.batch_size = 2, .candidate_steps = {4}}, {.batch_size = 8, .candidate_steps = {1}}}, 0);
  EXPECT_EQ(steps.steps(1), 4);
  EXPECT_EQ(steps.steps(5), 4);  // as near to both
  EXPECT_EQ(steps.steps(6), 1);
  EXPECT_EQ(steps.steps(64), 1);
}

TEST(AdaptiveSteps, RiseWhileDraftsAreAcceptedAndFallWhenTheyAreNot) {
  AdaptiveSteps steps(default_adaptive_rows(), 3);
  observe(steps, 1, 10, 3.0);
  EXPECT_EQ(steps.steps(1), 3) << "during the warm-up";
  observe(steps, 1, 4, 3.0);
  EXPECT_EQ(steps.steps(1), 3) << "between updates";
  observe(steps, 1, 1, 3.0);
  EXPECT_EQ(steps.steps(1), 5);
  observe(steps, 1, 60, 7.0);
  EXPECT_EQ(steps.steps(1), 7);
  observe(steps, 1, 60, 0.0);
  EXPECT_EQ(steps.steps(1), 1) << "the smallest candidate";
  EXPECT_EQ(steps.steps(8), 3) << "other rows have their own mean";
}

// The mean of 20 batches with weight 0.2 is close to their value.
TEST(AdaptiveSteps, ChooseOneMoreThanTheMeanNumberOfAcceptedTokens) {
  for (const auto& [mean, expected] : {std::pair{0.1, 1}, {1.0, 3}, {2.0, 3}, {3.0, 5}, {4.0, 5}, {5.2, 7}}) {
    AdaptiveSteps steps(default_adaptive_rows(), 3);
    observe(steps, 1, 100, mean);
    EXPECT_EQ(steps.steps(1), expected) << mean;
  }
}

TEST(AdaptiveSteps, TryDraftsAgainAfterBatchesWithoutThem) {
  AdaptiveSteps steps(default_adaptive_rows(), 3);
  observe(steps, 8, 25, 0.0);
  EXPECT_EQ(steps.steps(8), 0);
  observe(steps, 8, 4, 0.0);
  EXPECT_EQ(steps.steps(8), 0);
  observe(steps, 8, 1, 0.0);
  EXPECT_EQ(steps.steps(8), 1);
  observe(steps, 8, 40, 1.0);
  EXPECT_EQ(steps.steps(8), 3);
}

TEST(AdaptiveSteps, IgnoreBatchesWhoseDraftsWereNotMade) {
  AdaptiveSteps steps(default_adaptive_rows(), 3);
  for (int i = 0; i < 100; ++i) steps.observe(1, std::nullopt);
  EXPECT_EQ(steps.steps(1), 3);
}

class AdaptiveFile : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& text) {
    const auto path = std::filesystem::path(testing::TempDir()) / "attend_adaptive.json";
    std::ofstream(path) << text;
    return path;
  }
  std::string error(const std::string& text) {
    return testing_support::error_message(ErrorCode::kCorruptFile, [&] { read_adaptive_rows(write(text)); });
  }
};

TEST_F(AdaptiveFile, HasRowsAndMembersOfAllRows) {
  const std::vector<AdaptiveRow> rows = read_adaptive_rows(write(
      R"({"16": {"candidate_steps": [2, 0, 2]}, "ema_alpha": 0.5, "strategy": "ema",
          "4": {"candidate_steps": [7], "ema_alpha": 0.1, "up_hysteresis": 0.25, "update_interval": 2}})"));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].batch_size, 4);
  EXPECT_THAT(rows[0].candidate_steps, ElementsAre(7));
  EXPECT_EQ(rows[0].ema_alpha, 0.1);
  EXPECT_EQ(rows[0].up_hysteresis, 0.25);
  EXPECT_EQ(rows[0].update_interval, 2);
  EXPECT_EQ(rows[1].batch_size, 16);
  EXPECT_THAT(rows[1].candidate_steps, ElementsAre(0, 2));
  EXPECT_EQ(rows[1].ema_alpha, 0.5);
  EXPECT_EQ(rows[1].down_hysteresis, -0.25);
  EXPECT_EQ(most_steps(rows), 7);
}

TEST_F(AdaptiveFile, IsRejectedWithTheMemberAndWhatIsAccepted) {
  EXPECT_THAT(error("[1]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(error("{"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(error("{}"), HasSubstr("at least one batch size"));
  EXPECT_THAT(error(R"({"1": {}})"), HasSubstr("1: expected candidate_steps"));
  EXPECT_THAT(error(R"({"1": {"candidate_steps": []}})"),
              HasSubstr("1.candidate_steps []: expected an array"));
  EXPECT_THAT(error(R"({"1": {"candidate_steps": [64]}})"),
              HasSubstr("1.candidate_steps 64: expected an integer from 0 to 63"));
  EXPECT_THAT(error(R"({"1": {"candidate_steps": [1], "ema_alpha": 0}})"),
              HasSubstr("1.ema_alpha 0: expected"));
  EXPECT_THAT(error(R"({"update_interval": 0, "1": {"candidate_steps": [1]}})"),
              HasSubstr("update_interval 0: expected an integer from 1"));
  EXPECT_THAT(
      testing_support::error_message(ErrorCode::kNotFound, [] { read_adaptive_rows("/nonexistent"); }),
      HasSubstr("speculative_adaptive_config /nonexistent"));
}

}  // namespace
}  // namespace attend
