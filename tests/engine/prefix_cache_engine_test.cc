// Prefix cache in the engine: cached prefixes change no bit of any answer.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <vector>

#include "attend/engine/engine.h"
#include "tests/support/overflowing_model.h"

namespace attend {
namespace {

using Tokens = std::vector<int32_t>;

EngineConfig paged_config(int page_size, bool caches) {
  EngineConfig config;
  config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
  config.backend_options.page_size = page_size;
  config.max_running_requests = 8;
  config.context_length = 512;
  config.disable_radix_cache = !caches;
  config.disable_cascade_attention = true;  // its rounding depends on the other requests of a step
  return config;
}

// A temperature so high that a change of one bit in a logit soon changes a token.
SamplingParams sampling(uint64_t seed, int max_new_tokens) {
  return {.max_new_tokens = max_new_tokens, .temperature = 1.5f, .seed = seed, .ignore_eos = true};
}

Tokens letters(std::initializer_list<int> runs) {
  Tokens tokens;
  int32_t letter = 0;
  for (const int run : runs) tokens.insert(tokens.end(), static_cast<size_t>(run), 40 + letter++ % 3);
  return tokens;
}

struct CachedAnswer {
  Tokens tokens;
  int num_cached_tokens = 0;
  std::optional<int> cache_miss_position;
  FinishReason reason = FinishReason::kNone;
};

// Runs the engine until all requests have finished. Returns the answers by request.
std::map<RequestId, CachedAnswer> run_to_the_end(Engine& engine) {
  std::map<RequestId, CachedAnswer> answers;
  while (engine.step([&](const RequestOutput& output) {
    CachedAnswer& answer = answers[output.id];
    answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
    answer.num_cached_tokens = output.request.num_cached_tokens;
    answer.cache_miss_position = output.request.cache_miss_position;
    answer.reason = output.finish_reason;
  }))
    engine.check_memory();
  return answers;
}

CachedAnswer ask(Engine& engine, const Tokens& prompt, const SamplingParams& params) {
  const RequestId id = engine.submit(prompt, params);
  return run_to_the_end(engine).at(id);
}

TEST(EnginePrefixCache, CountsWholePagesWithoutTheLastToken) {
  Engine engine(paged_config(16, true));
  const Tokens prompt = letters({20, 20, 24});  // 4 pages
  EXPECT_EQ(ask(engine, prompt, sampling(1, 4)).num_cached_tokens, 0);
  EXPECT_EQ(ask(engine, prompt, sampling(1, 4)).num_cached_tokens, 48);
  Tokens longer = prompt;
  longer.push_back(41);
  EXPECT_EQ(ask(engine, longer, sampling(1, 4)).num_cached_tokens, 64);
  EXPECT_EQ(engine.stats().num_cached_tokens, 112);
  EXPECT_EQ(engine.num_used_slots(), 0) << "cached pages without a user count as free";
  EXPECT_GT(engine.num_cached_slots(), 0);
}

TEST(EnginePrefixCache, ReportsTheFirstTokenThatDiffersFromCachedPrompts) {
  Engine engine(paged_config(16, true));
  const auto position = [&](const Tokens& prompt) {
    return ask(engine, prompt, sampling(1, 2)).cache_miss_position;
  };
  const Tokens prompt = letters({20, 20, 24});
  EXPECT_EQ(position(prompt), std::nullopt) << "nothing is cached";
  EXPECT_EQ(position(prompt), std::nullopt) << "the prompt is cached";
  EXPECT_EQ(position(letters({20, 20, 24, 9, 9})), std::nullopt) << "the prompt continues a cached one";
  EXPECT_EQ(position(letters({20, 17, 24})), 37);
  EXPECT_EQ(position(letters({3, 30})), 3) << "no page is shared";
}

TEST(EnginePrefixCache, CachesAnswersForTheNextTurn) {
  Engine engine(paged_config(16, true));
  Tokens turn = letters({30, 10});
  const CachedAnswer first = ask(engine, turn, sampling(1, 30));
  turn.insert(turn.end(), first.tokens.begin(), first.tokens.end());
  turn.push_back(41);
  // The last of the 40 + 30 tokens was not computed. The other 69 fill 4 pages of 16 tokens.
  EXPECT_EQ(ask(engine, turn, sampling(2, 4)).num_cached_tokens, 64);
}

TEST(EnginePrefixCache, RequestsOfOneStepShareOneComputedPrefix) {
  Engine engine(paged_config(16, true));
  const Tokens prompt = letters({50, 50});
  for (uint64_t seed = 0; seed < 4; ++seed) engine.submit(prompt, sampling(seed, 8));
  engine.step([](const RequestOutput&) {});
  EXPECT_EQ(engine.stats().num_prefill_tokens, 100 + 3 * 4);
  for (const auto& [id, answer] : run_to_the_end(engine))
    EXPECT_EQ(answer.num_cached_tokens, id == 1 ? 0 : 96);
}

TEST(EnginePrefixCache, SaltsKeepRequestsApart) {
  Engine engine(paged_config(16, true));
  const GenerationRequest request{
      .prompt = letters({40}), .params = sampling(1, 2), .cache_salt = "alice", .priority = 0};
  GenerationRequest other = request;
  other.cache_salt = "bob";
  engine.submit(request);
  run_to_the_end(engine);
  const RequestId other_id = engine.submit(other);
  EXPECT_EQ(run_to_the_end(engine).at(other_id).num_cached_tokens, 0);
  const RequestId again = engine.submit(request);
  EXPECT_EQ(run_to_the_end(engine).at(again).num_cached_tokens, 32);
}

TEST(EnginePrefixCache, IsEmptyAfterAFlush) {
  Engine engine(paged_config(16, true));
  ask(engine, letters({40}), sampling(1, 2));
  engine.flush_cache();
  EXPECT_EQ(engine.num_cached_slots(), 0);
  EXPECT_EQ(ask(engine, letters({40}), sampling(1, 2)).num_cached_tokens, 0);
}

TEST(EnginePrefixCache, KeepsThePagesOfAnAbortedRequest) {
  Engine engine(paged_config(16, true));
  const RequestId id = engine.submit(letters({40}), sampling(1, 100));
  const OutputSink ignore = [](const RequestOutput&) {};
  for (int step = 0; step < 30; ++step) engine.step(ignore);
  EXPECT_TRUE(engine.abort(id, ignore));
  EXPECT_EQ(engine.num_cached_slots(), 64) << "of 40 + 29 tokens";
}

TEST(EnginePrefixCache, CanBeTurnedOff) {
  Engine engine(paged_config(16, false));
  EXPECT_FALSE(engine.info().prefix_cache);
  ask(engine, letters({40}), sampling(1, 2));
  EXPECT_EQ(ask(engine, letters({40}), sampling(1, 2)).num_cached_tokens, 0);
  EXPECT_EQ(engine.num_cached_slots(), 0);
}

TEST(EnginePrefixCache, KeepsNoPageOfAFailedRequest) {
  constexpr int32_t kBadToken = 77;
  const auto path = std::filesystem::path(testing::TempDir()) / "attend_prefix_cache_failing";
  testing_support::make_overflowing_model(ATTEND_SOURCE_DIR "/tests/goldens/llama-gqa4-hd32", path,
                                          kBadToken);
  EngineConfig config;
  config.model_path = path;
  config.backend_options.page_size = 1;
  Engine engine(config);
  const SamplingParams params{.max_new_tokens = 4, .ignore_eos = true};
  const CachedAnswer good = ask(engine, {5, 6, 7, 8}, params);
  EXPECT_EQ(ask(engine, {5, 6, kBadToken, 8}, params).reason, FinishReason::kError);
  EXPECT_EQ(ask(engine, {5, 6, kBadToken, 9}, params).reason, FinishReason::kError);
  EXPECT_EQ(ask(engine, {5, 6, 7, 8}, params).tokens, good.tokens);
  std::filesystem::remove_all(path);
}

// Dynamic and longrope RoPE rotate keys by the prompt's length if it exceeds the original context: dynamic
// with other angles for every length, longrope with one of two tables.
class RopeByPromptLength : public testing::TestWithParam<std::pair<const char*, bool>> {};

TEST_P(RopeByPromptLength, SharesNoKeysRotatedForAnotherLength) {
  const auto& [model, lengths_differ] = GetParam();
  EngineConfig config;
  config.model_path = std::string(ATTEND_SOURCE_DIR "/tests/goldens/") + model;
  config.backend_options.page_size = 1;
  Engine warm(config);
  config.disable_radix_cache = true;
  Engine cold(config);
  const SamplingParams params{.max_new_tokens = 4, .ignore_eos = true};
  const int original = cold.model_spec().ropes.front().original_max_position_embeddings;
  const int longest = cold.info().context_length - 5;
  ASSERT_GT(longest, original + 2);
  int num_cached = 0;
  for (const int length : {original - 4, original - 2, original + 2, original + 2, longest}) {
    Tokens prompt(static_cast<size_t>(length));
    for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(5 + i * i % 50);
    const CachedAnswer answer = ask(warm, prompt, params);
    EXPECT_EQ(answer.tokens, ask(cold, prompt, params).tokens) << length;
    num_cached += answer.num_cached_tokens;
  }
  const int within = original - 4, of_one_length = original + 1;
  EXPECT_EQ(num_cached, within + of_one_length + (lengths_differ ? 0 : original + 2));
}

INSTANTIATE_TEST_SUITE_P(EnginePrefixCache, RopeByPromptLength,
                         testing::Values(std::pair("llama-rope-dynamic", true),
                                         std::pair("phi3-longrope", false)));

// Submits, aborts and flushes at random, with chunked prefill and preemption. After every step each page has
// one owner, and every answer has the tokens of an engine without a cache that serves one request at a time.
class CachedAnswers : public testing::TestWithParam<int> {};

TEST_P(CachedAnswers, MatchAnswersWithoutTheCache) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
  EngineConfig single_config = paged_config(GetParam(), false);
  single_config.deterministic_inference = true;
  Engine uncached(single_config);
  int num_cached = 0, num_preemptions = 0, num_aborted = 0;
  for (const auto policy : {EvictionPolicy::kLru, EvictionPolicy::kLfu, EvictionPolicy::kPriority}) {
    EngineConfig config = paged_config(GetParam(), true);
    config.deterministic_inference = true;
    config.radix_eviction_policy = policy;
    config.max_total_tokens = GetParam() == 64 ? 320 : 360;
    config.chunked_prefill_size = 48;
    config.schedule.conservativeness = 0.0;
    Engine engine(config);
    std::map<RequestId, std::pair<Tokens, SamplingParams>> asked;
    std::map<RequestId, CachedAnswer> answers;
    const OutputSink sink = [&](const RequestOutput& output) {
      CachedAnswer& answer = answers[output.id];
      answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
      answer.reason = output.finish_reason;
      if (!output.finished()) return;
      num_cached += output.request.num_cached_tokens;
      num_preemptions += output.request.num_preemptions;
      EXPECT_LT(output.request.num_cached_tokens, output.request.num_prompt);
    };
    for (int event = 0; event < 150; ++event) {
      const int choice = below(10);
      if (choice < 2) {
        const Tokens prompt = letters({1 + below(3) * 32, below(2) * 64, below(70)});
        const SamplingParams params = sampling(static_cast<uint64_t>(below(3)), 1 + below(40));
        asked[engine.submit(prompt, params)] = {prompt, params};
      } else if (choice == 2 && below(3) == 0 && !asked.empty()) {
        num_aborted += engine.abort(1 + below(static_cast<int>(asked.size())), sink);
      } else if (choice == 3 && below(5) == 0) {
        engine.flush_cache();
      } else {
        engine.step(sink);
      }
      engine.check_memory();
    }
    while (engine.step(sink)) engine.check_memory();
    EXPECT_EQ(engine.num_used_slots(), 0);
    EXPECT_EQ(engine.stats().num_recoveries, 0);
    for (const auto& [id, question] : asked) {
      CachedAnswer& answer = answers[id];
      Tokens expected = ask(uncached, question.first, question.second).tokens;
      if (answer.reason == FinishReason::kAbort) expected.resize(answer.tokens.size());
      EXPECT_EQ(answer.tokens, expected) << "request " << id;
    }
  }
  EXPECT_GT(num_cached, 0);
  EXPECT_GT(num_preemptions, 0);
  EXPECT_GT(num_aborted, 0);
}

INSTANTIATE_TEST_SUITE_P(PageSizes, CachedAnswers, testing::Values(1, 16, 64),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace attend
