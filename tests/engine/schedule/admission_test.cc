// Admission, chunking and preemption. Expected values are computed by hand from the formulas in admission.h.
#include "attend/engine/schedule/admission.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "attend/base/error.h"
#include "attend/engine/schedule/schedule_policy.h"

namespace attend {
namespace {

Request find_request(int num_output, int num_prompt, int max_new_tokens = 128) {
  Request request;
  request.num_prompt = num_prompt;
  request.tokens.resize(static_cast<size_t>(num_prompt + num_output));
  request.params.max_new_tokens = max_new_tokens;
  return request;
}

TEST(NewTokenRatio, DecaysToASeventhOver600Steps) {
  NewTokenRatio ratio(1.0);
  EXPECT_DOUBLE_EQ(ratio.value(), 0.7);
  for (int step = 0; step < 100; ++step) ratio.after_decode();
  EXPECT_NEAR(ratio.value(), 0.599667, 1e-6);
  for (int step = 100; step < 700; ++step) ratio.after_decode();
  EXPECT_NEAR(ratio.value(), 0.098, 1e-12);
  ratio.reset();
  EXPECT_DOUBLE_EQ(ratio.value(), 0.7);
}

TEST(NewTokenRatio, IsEstimatedFromOutputsAtAPreemption) {
  NewTokenRatio ratio(1.0);
  ratio.after_preemption(100 + 200 + 300, 3 * 1000, 3);
  EXPECT_NEAR(ratio.value(), 0.21993, 1e-5);
  ratio.after_preemption(900, 900, 3);
  EXPECT_DOUBLE_EQ(ratio.value(), 1.0);
}

TEST(AdmissionBudget, AdmitsRequestsWhileTheirOutputsFit) {
  AdmissionBudget budget(10'000, 16);
  for (int running = 0; running < 4; ++running)
    budget.reserve(num_planned_tokens(find_request(200, 10, 1000)) * 0.6);
  EXPECT_DOUBLE_EQ(budget.left(), 8080);
  ASSERT_TRUE(budget.fits(3000, 512));
  budget.charge(3000, 512);
  EXPECT_DOUBLE_EQ(budget.left(), 4544);
  ASSERT_TRUE(budget.fits(3000, 512));
  budget.charge(3000, 512);
  EXPECT_DOUBLE_EQ(budget.left(), 1008);
  EXPECT_FALSE(budget.fits(3000, 512));
}

TEST(AdmissionBudget, PlansAtMost4096TokensPerAnswer) {
  EXPECT_EQ(num_planned_tokens(find_request(0, 10, 100'000)), 4096);
  EXPECT_EQ(num_planned_tokens(find_request(90, 10, 100)), 10);
  EXPECT_EQ(num_planned_tokens(find_request(100, 10, 100)), 0);
}

TEST(PromptChunk, EndsAtTheEndOfThePromptOrOnTheGrid) {
  const struct {
    PromptChunk prompt;
    int end;
    const char* why;
  } kCases[] = {
      {{.begin = 0, .prompt_end = 5000, .room = 8192, .grid = 64}, 5000, "all of it fits"},
      {{.begin = 0, .prompt_end = 5000, .room = 3192, .grid = 64}, 3136, "the last page boundary that fits"},
      {{.begin = 3136, .prompt_end = 5000, .room = 8192, .grid = 64}, 5000, "the rest of the prompt"},
      {{.begin = 0, .prompt_end = 5000, .room = 1000, .grid = 64}, 960, "the last page boundary that fits"},
      {{.begin = 10, .prompt_end = 5010, .room = 100, .grid = 64}, 64, "starts within a page"},
      {{.begin = 0, .prompt_end = 100, .room = 63, .grid = 64}, 0, "less room than a page"},
      {{.begin = 0, .prompt_end = 100, .room = 63, .grid = 64, .is_first = true},
       63,
       "a part of a page instead of nothing"},
      {{.begin = 63, .prompt_end = 100, .room = 20, .grid = 64, .is_first = true}, 64, "back to the grid"},
      {{.begin = 64, .prompt_end = 100, .room = 36, .grid = 64}, 100, "exactly enough room"},
      {{.begin = 64, .prompt_end = 100, .room = 0, .grid = 64, .is_first = true}, 64, "no room"},
      {{.begin = 64, .prompt_end = 100, .room = -1, .grid = 64, .is_first = true}, 64, "no room"},
      {{.begin = 5, .prompt_end = 100, .room = 7, .grid = 1}, 12, "pages of one token"},
      {{.begin = 0, .prompt_end = 500, .room = 200, .grid = 48},
       192,
       "pages of 16, states at multiples of 48"},
      {{.begin = 192, .prompt_end = 500, .room = 47, .grid = 48}, 192, "less room than the grid"},
      {{.begin = 0, .prompt_end = 100, .room = 99, .grid = 16, .is_whole = true}, 0, "never cut"},
      {{.begin = 0, .prompt_end = 100, .room = 99, .grid = 16, .is_whole = true, .is_first = true},
       0,
       "never cut"},
      {{.begin = 0, .prompt_end = 100, .room = 100, .grid = 16, .is_whole = true}, 100, "whole"},
  };
  for (const auto& [prompt, end, why] : kCases)
    EXPECT_EQ(chunk_end(prompt), end) << why << ": from " << prompt.begin << " of " << prompt.prompt_end
                                      << " with room for " << prompt.room << ", grid " << prompt.grid;
}

TEST(PromptChunk, DividesNoItem) {
  const ImageRun items[] = {{.first_token = 10, .num_tokens = 20},
                            {.image = 1, .first_token = 30, .num_tokens = 20}};
  const auto end = [&](int begin, int room) {
    return chunk_end({.begin = begin, .prompt_end = 60, .room = room, .is_first = true, .items = items});
  };
  EXPECT_EQ(end(0, 9), 9);
  EXPECT_EQ(end(0, 10), 10);
  EXPECT_EQ(end(0, 11), 10);
  EXPECT_EQ(end(0, 29), 10);
  EXPECT_EQ(end(0, 30), 30);
  EXPECT_EQ(end(0, 49), 30);
  EXPECT_EQ(end(0, 50), 50);
  EXPECT_EQ(end(10, 19), 10) << "less room than an item";
  EXPECT_EQ(end(15, 14), 15) << "less room than the rest of an item";
  EXPECT_EQ(end(15, 15), 30);
  for (const int room : {21, 24})
    EXPECT_EQ(
        chunk_end(
            {.begin = 10, .prompt_end = 60, .room = room, .grid = 16, .is_first = true, .items = items}),
        30)
        << "the grid ends at 16 and 32, within items; room " << room;
}

TEST(PromptChunk, EndsBeforeAnImageThatIsNotEncoded) {
  const auto end = [](int begin, int room, int grid) {
    return chunk_end(
        {.begin = begin, .prompt_end = 60, .room = room, .grid = grid, .is_first = true, .ready_end = 20});
  };
  EXPECT_EQ(end(0, 100, 1), 20);
  EXPECT_EQ(end(0, 10, 1), 10);
  EXPECT_EQ(end(20, 100, 1), 20);
  EXPECT_EQ(end(0, 100, 16), 16);
  EXPECT_EQ(end(16, 100, 16), 16) << "stays on the grid";
}

TEST(Preemption, ChoosesTheShortestOutputThenTheLongestPrompt) {
  std::vector<std::pair<int, int>> order;
  std::vector<Request> requests;
  for (const auto& [num_output, num_prompt] : {std::pair(5, 10), {5, 90}, {1, 3}, {70, 9}})
    requests.push_back(find_request(num_output, num_prompt));
  std::sort(requests.begin(), requests.end(), is_preempted_before);
  for (const Request& request : requests) order.emplace_back(request.num_output(), request.num_prompt);
  EXPECT_EQ(order, (std::vector<std::pair<int, int>>{{1, 3}, {5, 90}, {5, 10}, {70, 9}}));
}

TEST(SchedulePolicy, IsParsedFromItsName) {
  EXPECT_EQ(parse_schedule_policy("lpm"), SchedulePolicy::kLpm);
  EXPECT_EQ(parse_schedule_policy("lof"), SchedulePolicy::kLof);
  EXPECT_EQ(to_string(parse_schedule_policy("priority")), "priority");
  EXPECT_THROW(parse_schedule_policy("random"), Error);
}

}  // namespace
}  // namespace attend
