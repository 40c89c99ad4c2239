// A long life of an engine: short answers of every kind, cached prefixes, chunks, preemption and aborts, over
// and over. Nothing stays behind, and what was right at the start is right at the end.
//   ATTEND_SOAK_REQUESTS, ATTEND_SOAK_SECONDS: how many requests, or for how long (scripts/soak.sh)
//   ATTEND_SOAK_SEED, ATTEND_SOAK_BACKEND, ATTEND_SOAK_DTYPE, ATTEND_SOAK_OVERLAP=1: another life
// SIGTERM ends it early, with the same checks and the same report.
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
constexpr int kRound =
    256;  // requests that may be under way together; a queue of all would be memory of its own

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

// Short ones.
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
  // So little room that cached prefixes are evicted and running requests preempted; prompts come in chunks.
  static EngineConfig config() {
    EngineConfig config;
    config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
    config.device.type = GetParam();
    config.context_length = 512;
    config.max_total_tokens = 1536;
    config.max_running_requests = 32;
    config.chunked_prefill_size = 128;
    config.cascade_min_bytes = 0;
    // Rounded, a sum of another order may be another token.
    if (GetParam() == DeviceType::kCpu) config.dtype = DType::kF32;
    if (const std::string dtype = text_from_environment("ATTEND_SOAK_DTYPE"); !dtype.empty())
      config.dtype = parse_dtype(dtype);
    config.backend_options.attention_backend = text_from_environment("ATTEND_SOAK_BACKEND");
    config.overlap_schedule = from_environment("ATTEND_SOAK_OVERLAP", 0) != 0;
    return config;
  }
};

TEST_P(Soak, LeaksNothingAndKeepsAnswering) {
  if (GetParam() == DeviceType::kCuda && cuda::device_count() == 0)
    GTEST_SKIP() << "this machine has no GPU that this build can use";
  std::signal(SIGTERM, [](int) { stop_requested = 1; });
  const auto seed = static_cast<unsigned>(from_environment("ATTEND_SOAK_SEED", 1));
  std::mt19937 random(seed);
  std::atomic<int64_t> num_ends = 0, num_known = 0,
                       num_wrong = 0;  // callbacks count: they outlive the engine
  AsyncEngine engine(config());

  const auto ask = [&](const KnownPrompt& known, std::atomic<bool>* right) {
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
    ask(prompt, &right);
    ASSERT_TRUE(engine.drain(kDrainTimeout));
    if (right) known.push_back(prompt);
  }
  ASSERT_GT(known.size(), 50u) << "the test tests little";
  num_known = num_wrong = 0;
  int64_t num_asked = num_ends;

  // Random tokens behind one of eight beginnings, drawn as users draw.
  std::vector<std::vector<int32_t>> beginnings(8);
  for (std::vector<int32_t>& beginning : beginnings)
    for (size_t i = 0, count = random() % 300; i < count; ++i)
      beginning.push_back(static_cast<int32_t>(5 + random() % 1000));
  const auto draw = [&](bool all_are_long) {
    std::vector<int32_t> prompt =
        random() % 2 == 0 ? beginnings[random() % beginnings.size()] : std::vector<int32_t>();
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
    // Long answers fill the pool; rounds of short ones alone are many requests in little time.
    const bool all_are_long = num_rounds++ % 8 == 0;
    for (int i = 0; i < kRound; ++i, ++num_asked) {
      if (random() % 8 == 0)
        ask(known[random() % known.size()], nullptr);
      else
        draw(all_are_long);
    }
    ASSERT_TRUE(engine.drain(kDrainTimeout));
    ASSERT_EQ(engine.metrics().num_used_tokens, 0);
  };

  // Cached prefixes are memory too, now more, now less: they go before it is counted. What comes behind a
  // flush waits for it.
  const auto count_allocations = [&] {
    engine.flush_cache();
    draw(false);
    ++num_asked;
    EXPECT_TRUE(engine.drain(kDrainTimeout));
    return testing_support::num_live_allocations();
  };

  const int64_t num_requests = from_environment("ATTEND_SOAK_REQUESTS", 4 * kRound);
  const auto start = steady_clock::now();
  const auto end = start + std::chrono::seconds(from_environment("ATTEND_SOAK_SECONDS", 0));
  const auto is_over = [&] {
    return stop_requested != 0 || (num_asked >= num_requests && steady_clock::now() >= end);
  };
  auto next_word = start + std::chrono::seconds(30);
  const auto say_how_it_goes = [&] {
    if (steady_clock::now() < next_word) return;
    next_word += std::chrono::seconds(30);
    std::cout << std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now() - start).count()
              << " s: " << num_asked << " requests, " << num_known - num_wrong << " of " << num_known
              << " known answers right" << std::endl;
  };
  // Tables grow to the size that they have at their fullest.
  while (num_asked < num_requests / 4 || num_asked < 2 * kRound) ASSERT_NO_FATAL_FAILURE(round());
  // A GPU's memory counts too: the tensor that holds it is an allocation.
  const int64_t allocations_before = count_allocations();
  do {
    ASSERT_NO_FATAL_FAILURE(round());
    say_how_it_goes();
  } while (!is_over());

  const int64_t allocations = count_allocations();
  const EngineMetrics metrics = engine.metrics();
  std::cout << "seed " << seed << ", " << num_asked << " requests, " << num_known - num_wrong << " of "
            << num_known << " known answers right; allocations " << allocations_before << " early on, "
            << allocations << " at the end; " << metrics.num_steps << " steps, "
            << metrics.num_generated_tokens << " tokens, " << metrics.num_preemptions << " preemptions, "
            << metrics.num_evicted_tokens << " tokens evicted, prefix hits "
            << static_cast<int>(100 * metrics.cache_hit_rate()) << " %\n";
  EXPECT_EQ(num_ends, num_asked);
  EXPECT_EQ(num_wrong, 0) << "of " << num_known;
  EXPECT_GT(num_known, 0);
  EXPECT_GT(metrics.num_preemptions, 0) << "the test tests little";
  EXPECT_GT(metrics.num_evicted_tokens, 0) << "the test tests little";
  EXPECT_EQ(metrics.num_recoveries, 0);
  EXPECT_EQ(metrics.num_failed_steps, 0);
  EXPECT_NEAR(static_cast<double>(allocations - allocations_before), 0.0, 64.0);
}

INSTANTIATE_TEST_SUITE_P(On, Soak, testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         [](const auto& param) { return param.param == DeviceType::kCpu ? "Cpu" : "Gpu"; });

}  // namespace
}  // namespace attend
