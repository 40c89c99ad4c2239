#include "attend/serve/protocols/monitoring/metrics_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attend::serve {
namespace {

using testing::HasSubstr;

TEST(MetricsText, UsesNamesAndLabelsOfSglang) {
  EngineMetrics engine;
  engine.num_running = 3;
  engine.num_used_tokens = 25;
  engine.num_total_tokens = 100;
  const std::string text = metrics_text(engine, {}, "a\"b\\");
  EXPECT_THAT(
      text,
      HasSubstr("# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs{model_name=\"a\\\"b\\\\\","
                "engine_type=\"unified\",tp_rank=\"0\",pp_rank=\"0\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("sglang:token_usage{model_name=\"a\\\"b\\\\\",engine_type=\"unified\",tp_rank="
                              "\"0\",pp_rank=\"0\"} 0.25\n"));
}

TEST(MetricsText, AccumulatesHistogramBuckets) {
  constexpr double kBounds[] = {0.1, 1.0};
  EngineMetrics engine;
  engine.inter_token = {kBounds, {2, 3, 4}, 12.5};
  const std::string text = metrics_text(engine, {}, "m");
  for (const char* line : {"le=\"0.1\"} 2\n", "le=\"1\"} 5\n", "le=\"+Inf\"} 9\n"})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, HasSubstr("sglang:inter_token_latency_seconds_sum{model_name=\"m\",engine_type="
                              "\"unified\",tp_rank=\"0\",pp_rank=\"0\"} 12.5\n"));
  EXPECT_THAT(text,
              HasSubstr("_count{model_name=\"m\",engine_type=\"unified\",tp_rank=\"0\",pp_rank=\"0\"} 9\n"));
}

TEST(MetricsText, ReportsSpeculation) {
  EngineMetrics engine;
  engine.drafts = {.num_steps = 4, .num_drafted = 10, .num_accepted = 5};
  const std::string text = metrics_text(engine, {}, "m", MetricNames::kBoth);
  for (const char* line :
       {"sglang:spec_accept_length{model_name=\"m\",engine_type=\"unified\",tp_rank=\"0\",pp_rank=\"0\"} "
        "2.25\n",
        "sglang:spec_accept_rate{model_name=\"m\",engine_type=\"unified\",tp_rank=\"0\",pp_rank=\"0\"} 0.5\n",
        "vllm:spec_decode_num_drafts_total{model_name=\"m\",engine=\"0\"} 4\n",
        "vllm:spec_decode_num_draft_tokens_total{model_name=\"m\",engine=\"0\"} 10\n",
        "vllm:spec_decode_num_accepted_tokens_total{model_name=\"m\",engine=\"0\"} 5\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(MetricsText, ReportsTiersOfThePrefixCacheInTokens) {
  EngineMetrics engine;
  engine.page_size = 16;
  engine.num_host_cached_prompt_tokens = 32;
  engine.num_disk_cached_prompt_tokens = 48;
  engine.tiers = {
      .num_host_pages = 10, .num_host_free_pages = 3, .num_disk_hit_pages = 2, .num_disk_bytes = 99};
  const std::string text = metrics_text(engine, {}, "m");
  const std::string labels = "{model_name=\"m\",engine_type=\"unified\",tp_rank=\"0\",pp_rank=\"0\"} ";
  for (const auto& [name, value] : {std::pair("host_cached_tokens_total", "32"),
                                    {"disk_cached_tokens_total", "48"},
                                    {"hicache_host_total_tokens", "160"},
                                    {"hicache_host_used_tokens", "112"},
                                    {"hicache_disk_hit_tokens_total", "32"},
                                    {"hicache_disk_bytes", "99"}})
    EXPECT_THAT(text, HasSubstr("sglang:" + std::string(name) + labels + value + "\n"));
}

TEST(MetricsText, UsesVllmNamesOnRequest) {
  EngineMetrics engine;
  engine.num_running = 3;
  engine.num_cached_prompt_tokens = 7;
  engine.num_finished[static_cast<size_t>(FinishReason::kLength)] = 2;
  const std::string vllm = metrics_text(engine, {}, "m", MetricNames::kVllm);
  for (const char* line : {"vllm:num_requests_running{model_name=\"m\",engine=\"0\"} 3\n",
                           "vllm:prefix_cache_hits_total{model_name=\"m\",engine=\"0\"} 7\n",
                           "finished_reason=\"length\"} 2\n", "vllm:request_queue_time_seconds_count{"})
    EXPECT_THAT(vllm, HasSubstr(line));
  EXPECT_THAT(vllm, testing::Not(HasSubstr("sglang:")));
  const std::string both = metrics_text(engine, {}, "m", MetricNames::kBoth);
  EXPECT_EQ(both, metrics_text(engine, {}, "m", MetricNames::kSglang) + vllm);
}

}  // namespace
}  // namespace attend::serve
