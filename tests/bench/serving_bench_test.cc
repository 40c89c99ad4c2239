// `bench serving` with the tiny model.
#include "attend/bench/serving/serving_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/error_message.h"

namespace attend::bench {
namespace {

using testing::HasSubstr;
using testing_support::error_message;

ServingOptions make_options(const TraceOptions& trace) {
  ServingOptions options;
  options.trace = trace;
  options.engine.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
  options.engine.context_length = 512;
  options.engine.max_total_tokens = 4096;
  options.engine.backend_options.page_size = 16;
  return options;
}

constexpr LengthDistribution always(int tokens) { return {.lowest = tokens, .highest = tokens}; }

TEST(ServingBench, AnswersTheWholeTrace) {
  ServingOptions options = make_options({.num_conversations = 12,
                                         .request_rate = 400.0,
                                         .input = {.lowest = 5, .highest = 60},
                                         .output = {.lowest = 1, .highest = 9}});
  int num_reports = 0;
  options.served = [&](int num_done, int num_requests) {
    EXPECT_EQ(num_done, ++num_reports);
    EXPECT_EQ(num_requests, 12);
  };
  const ServingResult result = bench_serving(options);
  ASSERT_EQ(result.requests.size(), 12u);
  EXPECT_EQ(num_reports, 12);
  size_t num_later_tokens = 0;
  for (const ServedRequest& request : result.requests) {
    EXPECT_GE(request.num_output, 1);
    EXPECT_LE(request.num_output, 9);
    EXPECT_GE(request.first_token, request.arrival);
    EXPECT_GE(request.finished, request.first_token);
    EXPECT_GE(result.seconds, request.finished);
    num_later_tokens += static_cast<size_t>(request.num_output - 1);
  }
  EXPECT_EQ(result.inter_token_seconds.size(), num_later_tokens);
  EXPECT_EQ(static_cast<int64_t>(result.samples.size()), result.num_steps);
  EXPECT_THAT(result.trace, HasSubstr("12 requests, 5 to 60 tokens in, 1 to 9 out, Poisson, 400 per second"));
}

TEST(ServingBench, FindsSharedPrefixesAndEarlierTurnsInTheCache) {
  ServingOptions options = make_options({.num_conversations = 4,
                                         .input = always(16),
                                         .output = always(9),
                                         .num_shared_prefixes = 1,
                                         .shared_prefix_tokens = 64,
                                         .num_turns = 2});
  options.max_concurrency = 1;
  const auto cached = [&] {
    std::vector<int> tokens;
    for (const ServedRequest& request : bench_serving(options).requests) tokens.push_back(request.num_cached);
    return tokens;
  };
  // A later conversation finds 64 of its 80 prompt tokens. A second turn has 80 + 9 + 16 tokens, of which the
  // first 80 fill whole pages.
  EXPECT_EQ(cached(), (std::vector<int>{0, 64, 64, 64, 80, 80, 80, 80}));
  options.engine.disable_radix_cache = true;
  EXPECT_EQ(cached(), std::vector<int>(8, 0));
}

TEST(ServingBench, HonorsMaxConcurrency) {
  ServingOptions options = make_options({.num_conversations = 8, .input = always(8), .output = always(6)});
  options.max_concurrency = 3;
  int most = 0;
  for (const PoolSample& sample : bench_serving(options).samples)
    most = std::max(most, sample.num_running + sample.num_waiting);
  EXPECT_EQ(most, 3);
}

TEST(ServingBench, RejectsATraceThatDoesNotFit) {
  const ServingOptions options =
      make_options({.num_conversations = 2, .input = always(300), .output = always(9), .num_turns = 2});
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { (void)bench_serving(options); }),
              HasSubstr("conversation 1 of the trace: 618 tokens with its answers: at most 512"));
}

TEST(ServingBench, StopsAtAFailedRequest) {
  ServingOptions options = make_options({.num_conversations = 8, .input = always(8), .output = always(6)});
  options.engine.schedule.max_queued_requests = 2;
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { (void)bench_serving(options); }),
              HasSubstr("a request was not answered: the request queue is full"));
}

TEST(ServingBench, WritesTheFiguresOfAPlot) {
  const std::string path = testing::TempDir() + "/attend_serving.json";
  write_json(bench_serving(make_options({.num_conversations = 3, .input = always(8), .output = always(5)})),
             path);
  const auto json = nlohmann::json::parse(std::ifstream(path));
  EXPECT_EQ(json.at("requests"), 3);
  EXPECT_NEAR(json.at("input tokens/s").get<double>() / json.at("output tokens/s").get<double>(), 8.0 / 5.0,
              1e-9);
  for (const char* latency : {"ttft", "itl", "tpot", "e2e"}) {
    const auto& figures = json.at("latencies").at(latency);
    ASSERT_EQ(figures.at("percentiles").size(), 101u) << latency;
    EXPECT_EQ(figures.at("percentiles")[99], figures.at("p99")) << latency;
    EXPECT_LE(figures.at("p50"), figures.at("max")) << latency;
  }
  for (const char* name : {"seconds", "running", "waiting", "used_tokens", "cached_tokens"})
    EXPECT_EQ(static_cast<int64_t>(json.at("samples").at(name).size()), json.at("steps")) << name;
}

TEST(Percentile, IsTheNearestRank) {
  EXPECT_EQ(percentile({}, 0.5), 0.0);
  const std::vector<double> odd = {1, 2, 3}, even = {1, 2, 3, 4};
  EXPECT_EQ(percentile(odd, 0.5), 2.0);
  EXPECT_EQ(percentile(even, 0.5), 2.0);
  EXPECT_EQ(percentile(even, 0.0), 1.0);
  EXPECT_EQ(percentile(even, 0.99), 4.0);
}

}  // namespace
}  // namespace attend::bench
