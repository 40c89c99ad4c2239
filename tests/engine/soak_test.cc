// Runs an engine for a long time with short answers of every kind, cached prefixes, chunks, preemption and
// aborts. Memory does not leak, and answers that were right at the start are right at the end.
//   ATTEND_SOAK_REQUESTS, ATTEND_SOAK_SECONDS: minimum requests and duration (scripts/soak.sh)
//   ATTEND_SOAK_SEED, ATTEND_SOAK_BACKEND, ATTEND_SOAK_DTYPE, ATTEND_SOAK_OVERLAP=1: variants
// SIGTERM ends the run early, with the same checks and the same report.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "attend/engine/async_engine.h"
#include "attend/tensor/cuda.h"
#include "tests/support/count_allocations.h"

namespace attend {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDrainTimeout{600000};
constexpr int kRound = 256;  // requests submitted at once; a queue of all requests would itself take memory

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? std::atoll(value) : otherwise;
}

std::string text_from_environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

volatile std::sig_atomic_t stop_requested = 0;

struct KnownPrompt {
  std::string prompt, answer;
};

// Prompts of fewer than 256 tokens with their answers.
std::vector<KnownPrompt> known_prompts() {
  std::ifstream file(ATTEND_SOURCE_DIR "/tests/data/attend-tiny-prompts.jsonl");
  std::vector<KnownPrompt> known;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.at("input_ids").size() < 256) known.push_back({json.at("prompt"), json.at("answer")});
  }
  return known;
}

class Soak : public testing::TestWithParam<DeviceType> {
 protected:
  // The pool is so small that cached prefixes are evicted and running requests preempted. Prompts are
  // prefilled in chunks.
  static EngineConfig config() {
    EngineConfig config;
    config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
    config.device.type = GetParam();
    config.context_length = 512;
    config.max_total_tokens = 1536;
    config.max_running_requests = 32;
    config.chunked_prefill_size = 128;
    config.cascade_min_bytes = 0;
    // With 16-bit rounding, a sum in another order can change a token.
    if (GetParam() == DeviceType::kCpu) config.dtype = DType::kF32;
    if (const std::string dtype = text_from_environment("ATTEND_SOAK_DTYPE"); !dtype.empty())
      config.dtype = parse_dtype(dtype);
    config.backend_options.attention_backend = text_from_environment("ATTEND_SOAK_BACKEND");
    config.overlap_schedule = from_environment("ATTEND_SOAK_OVERLAP", 0) != 0;
    return config;
  }
};

TEST_P(Soak, LeaksNoMemoryAndAnswersCorrectly) {
  if (GetParam() == DeviceType::kCuda && cuda::device_count() == 0)
    GTEST_SKIP() << "this machine has no GPU that this build can use";
  std::signal(SIGTERM, [](int) { stop_requested = 1; });
  const auto seed = static_cast<unsigned>(from_environment("ATTEND_SOAK_SEED", 1));
  std::mt19937 random(seed);
  std::atomic<int64_t> num_ends = 0, num_known = 0,
                       num_wrong = 0;  // declared before the engine, because its callbacks count in them
  AsyncEngine engine(config());

  const auto submit_known = [&](const KnownPrompt& known, std::atomic<bool>* right) {
    engine.submit({.prompt = known.prompt, .params = {.max_new_tokens = 64}},
                  [&, right, text = std::string()](const RequestOutput& output) mutable {
                    text += output.text;
                    if (!output.finished()) return;
                    ++num_ends;
                    ++num_known;
                    if (text != known.answer) ++num_wrong;
                    if (right != nullptr) *right = text == known.answer;
                  });
  };
  std::vector<KnownPrompt> known;
  for (const KnownPrompt& prompt : known_prompts()) {
    std::atomic<bool> right = false;
    submit_known(prompt, &right);
    ASSERT_TRUE(engine.drain(kDrainTimeout));
    if (right) known.push_back(prompt);
  }
  ASSERT_GT(known.size(), 50u) << "the test checks too little";
  num_known = num_wrong = 0;
  int64_t num_submitted = num_ends;

  // Random tokens, half of the time after one of eight shared prefixes.
  std::vector<std::vector<int32_t>> prefixes(8);
  for (std::vector<int32_t>& prefix : prefixes)
    for (size_t i = 0, count = random() % 300; i < count; ++i)
      prefix.push_back(static_cast<int32_t>(5 + random() % 1000));
  const auto submit_random = [&](bool all_are_long) {
    std::vector<int32_t> prompt =
        random() % 2 == 0 ? prefixes[random() % prefixes.size()] : std::vector<int32_t>();
    for (size_t i = 0, count = 1 + random() % 8; i < count; ++i)
      prompt.push_back(static_cast<int32_t>(5 + random() % 1000));
    const RequestId id = engine.submit(
        {.prompt = std::move(prompt),
         .params = {.max_new_tokens = static_cast<int>(all_are_long ? 40 + random() % 80 : 1 + random() % 4),
                    .temperature = 1.0f,
                    .presence_penalty = random() % 4 == 0 ? 0.5f : 0.0f,
                    .ignore_eos = true}},
        [&](const RequestOutput& output) { num_ends += output.finished() ? 1 : 0; });
    if (random() % 16 == 0) engine.abort(id);
  };
  int64_t num_rounds = 0;
  const auto round = [&] {
    // Long answers fill the pool. Rounds of short answers submit many requests in little time.
    const bool all_are_long = num_rounds++ % 8 == 0;
    for (int i = 0; i < kRound; ++i, ++num_submitted) {
      if (random() % 8 == 0)
        submit_known(known[random() % known.size()], nullptr);
      else
        submit_random(all_are_long);
    }
    ASSERT_TRUE(engine.drain(kDrainTimeout));
    ASSERT_EQ(engine.metrics().num_used_tokens, 0);
  };

  // Cached prefixes vary in size, so they are flushed before allocations are counted. The flush runs before
  // the next request is admitted.
  const auto count_allocations = [&] {
    engine.flush_cache();
    submit_random(false);
    ++num_submitted;
    EXPECT_TRUE(engine.drain(kDrainTimeout));
    return testing_support::num_live_allocations();
  };

  const int64_t num_requests = from_environment("ATTEND_SOAK_REQUESTS", 4 * kRound);
  const auto start = steady_clock::now();
  const auto end = start + std::chrono::seconds(from_environment("ATTEND_SOAK_SECONDS", 0));
  const auto is_over = [&] {
    return stop_requested != 0 || (num_submitted >= num_requests && steady_clock::now() >= end);
  };
  auto next_report = start + std::chrono::seconds(30);
  const auto print_progress = [&] {
    if (steady_clock::now() < next_report) return;
    next_report += std::chrono::seconds(30);
    std::cout << std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now() - start).count()
              << " s: " << num_submitted << " requests, " << num_known - num_wrong << " of " << num_known
              << " known answers right" << std::endl;
  };
  // Tables grow to their final size in these rounds.
  while (num_submitted < num_requests / 4 || num_submitted < 2 * kRound) ASSERT_NO_FATAL_FAILURE(round());
  // Allocations on a GPU are counted too, since each one belongs to a tensor on the host.
  const int64_t allocations_before = count_allocations();
  do {
    ASSERT_NO_FATAL_FAILURE(round());
    print_progress();
  } while (!is_over());

  const int64_t allocations = count_allocations();
  const EngineMetrics metrics = engine.metrics();
  std::cout << "seed " << seed << ", " << num_submitted << " requests, " << num_known - num_wrong << " of "
            << num_known << " known answers right; allocations " << allocations_before << " early on, "
            << allocations << " at the end; " << metrics.num_steps << " steps, "
            << metrics.num_generated_tokens << " tokens, " << metrics.num_preemptions << " preemptions, "
            << metrics.num_evicted_tokens << " tokens evicted, prefix hits "
            << static_cast<int>(100 * metrics.cache_hit_rate()) << " %\n";
  EXPECT_EQ(num_ends, num_submitted);
  EXPECT_EQ(num_wrong, 0) << "of " << num_known;
  EXPECT_GT(num_known, 0);
  EXPECT_GT(metrics.num_preemptions, 0) << "the test checks too little";
  EXPECT_GT(metrics.num_evicted_tokens, 0) << "the test checks too little";
  EXPECT_EQ(metrics.num_recoveries, 0);
  EXPECT_EQ(metrics.num_failed_steps, 0);
  EXPECT_NEAR(static_cast<double>(allocations - allocations_before), 0.0, 64.0);
}

INSTANTIATE_TEST_SUITE_P(On, Soak, testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         [](const auto& param) { return param.param == DeviceType::kCpu ? "Cpu" : "Gpu"; });

}  // namespace
}  // namespace attend
