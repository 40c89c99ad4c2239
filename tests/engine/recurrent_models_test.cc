// Engines with recurrent states: snapshots in the prefix cache change no bit of any answer, and requests
// resume where the cache has a state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "attend/engine/engine.h"
#include "attend/tensor/cuda.h"
#include "tests/support/error_message.h"
#include "tests/support/gpu_device.h"

namespace attend {
namespace {

using testing_support::error_message;
using testing_support::kGpu;
using Tokens = std::vector<int32_t>;

constexpr int kPageSize = 8;

EngineConfig recurrent_config(bool caches, const char* model = "qwen3-5-text-tied") {
  EngineConfig config;
  config.model_path = std::string(ATTEND_SOURCE_DIR "/tests/goldens/") + model;
  config.backend_options.page_size = kPageSize;
  config.max_running_requests = 4;
  config.disable_radix_cache = !caches;
  config.deterministic_inference = true;
  return config;
}

// A temperature so high that a change of one bit in a logit soon changes a token.
SamplingParams sampling(uint64_t seed, int max_new_tokens) {
  return {.max_new_tokens = max_new_tokens, .temperature = 1.5f, .seed = seed, .ignore_eos = true};
}

Tokens random_tokens(std::mt19937& generator, int count) {
  std::uniform_int_distribution<int32_t> any(2, 120);
  Tokens tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = any(generator);
  return tokens;
}

struct Answer {
  Tokens tokens;
  int num_cached_tokens = 0;
};

std::map<RequestId, Answer> run_to_the_end(Engine& engine) {
  std::map<RequestId, Answer> answers;
  while (engine.step([&](const RequestOutput& output) {
    Answer& answer = answers[output.id];
    answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
    answer.num_cached_tokens = output.request.num_cached_tokens;
  }))
    engine.check_memory();
  return answers;
}

Answer ask(Engine& engine, const Tokens& prompt, int max_new_tokens = 4) {
  const RequestId id = engine.submit(prompt, sampling(1, max_new_tokens));
  return run_to_the_end(engine).at(id);
}

Tokens joined(Tokens first, const Tokens& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST(RecurrentEngine, TheSamePromptResumesBeforeItsLastToken) {
  std::mt19937 generator(1);
  Engine engine(recurrent_config(true));
  for (const int length : {3, 8, 9, 64, 65, 150}) {
    const Tokens prompt = random_tokens(generator, length);
    const Answer first = ask(engine, prompt), second = ask(engine, prompt);
    EXPECT_EQ(first.num_cached_tokens, 0);
    EXPECT_EQ(second.num_cached_tokens, (length - 1) / kPageSize * kPageSize);
    EXPECT_EQ(second.tokens, first.tokens);
  }
}

TEST(RecurrentEngine, TheNextTurnResumesNearTheEndOfTheAnswer) {
  std::mt19937 generator(2);
  Engine engine(recurrent_config(true));
  const Tokens prompt = random_tokens(generator, 20);
  const Answer first = ask(engine, prompt, 120);
  const Tokens next = joined(joined(prompt, first.tokens), random_tokens(generator, 5));
  // States of answers are saved at multiples of 64.
  EXPECT_EQ(ask(engine, next).num_cached_tokens, 128);
}

TEST(RecurrentEngine, TheThirdRequestOfAPrefixResumesAtItsFork) {
  std::mt19937 generator(3);
  EngineConfig config = recurrent_config(true);
  config.state_snapshot_interval = 1024;
  Engine engine(config);
  const Tokens prefix = random_tokens(generator, 40);
  EXPECT_EQ(ask(engine, joined(prefix, {2, 3, 4, 5, 6, 7, 8, 9, 10})).num_cached_tokens, 0);
  EXPECT_EQ(ask(engine, joined(prefix, {3, 3, 4})).num_cached_tokens, 0) << "K/V without a state";
  EXPECT_EQ(ask(engine, joined(prefix, {4, 3, 4})).num_cached_tokens, 40);
}

TEST(RecurrentEngine, LongPromptsHaveSnapshotsAtIntervals) {
  std::mt19937 generator(4);
  EngineConfig config = recurrent_config(true);
  config.state_snapshot_interval = 32;
  Engine engine(config);
  const Tokens prompt = random_tokens(generator, 150);
  ask(engine, prompt);
  const Tokens other(prompt.begin(), prompt.begin() + 75);
  EXPECT_EQ(ask(engine, joined(other, {5, 6, 7})).num_cached_tokens, 64);
}

TEST(RecurrentEngine, KeepsTheSnapshotsThatWereUsedLast) {
  std::mt19937 generator(5);
  EngineConfig config = recurrent_config(true);
  config.max_mamba_cache_size = config.max_running_requests + 2;
  config.state_snapshot_interval = 1024;
  Engine engine(config);
  EXPECT_EQ(engine.info().num_state_snapshots, 2);
  const Tokens a = random_tokens(generator, 20), b = random_tokens(generator, 20),
               c = random_tokens(generator, 20);
  ask(engine, a);
  ask(engine, b);
  EXPECT_EQ(ask(engine, a).num_cached_tokens, 16);
  ask(engine, c);
  EXPECT_EQ(ask(engine, a).num_cached_tokens, 16);
  EXPECT_EQ(ask(engine, b).num_cached_tokens, 0);
}

TEST(RecurrentEngine, DividesTheGivenStatesAmongRequestsAndSnapshots) {
  EngineConfig config = recurrent_config(true);
  config.max_running_requests = 0;
  config.max_mamba_cache_size = 10;
  Engine engine(config);
  EXPECT_EQ(engine.info().limits.max_reqs, 5);
  EXPECT_EQ(engine.info().num_state_snapshots, 5);
}

TEST(RecurrentEngine, HasNoSnapshotsWithoutAPrefixCache) {
  Engine engine(recurrent_config(false));
  EXPECT_EQ(engine.info().num_state_snapshots, 0);
  const size_t state_bytes = engine.info().target().state_bytes;
  // Two layers: f32 [4, 24, 16], and 3 inputs of 2 * 32 + 96 channels.
  EXPECT_EQ(state_bytes, 2 * sizeof(float) * (4 * 24 * 16 + 3 * 160));
  EXPECT_GE(engine.info().target().state_pool_bytes, 5 * state_bytes);
}

TEST(RecurrentEngine, RejectsMoreStatesThanFitIntoMemory) {
  EngineConfig config = recurrent_config(true);
  config.max_mamba_cache_size = 1 << 30;
  EXPECT_THAT(error_message(ErrorCode::kOutOfMemory, [&] { Engine engine(config); }),
              testing::HasSubstr("free for it 0 after 1073741824 recurrent states of "));
}

TEST(RecurrentEngine, RejectsTooFewStatesAndIntervalsWithinAPage) {
  EngineConfig config = recurrent_config(true);
  config.max_mamba_cache_size = 3;
  EXPECT_NE(error_message(ErrorCode::kInvalidArgument, [&] { Engine engine(config); })
                .find("max_mamba_cache_size 3: at least 4"),
            std::string::npos);
  config = recurrent_config(true);
  config.state_snapshot_interval = 12;
  EXPECT_NE(error_message(ErrorCode::kInvalidArgument, [&] { Engine engine(config); })
                .find("state_snapshot_interval 12: expected a multiple of the page size 8"),
            std::string::npos);
}

// Settings of the engine with a cache.
struct CachedCase {
  std::string name;
  const char* model = "qwen3-5-text-tied";
  int page_size = kPageSize;
  int chunk = 0;          // chunked_prefill_size
  int num_snapshots = 0;  // 0: default
  int interval = 0;       // 0: default
  int pool_tokens = 0;    // 0: default
  bool overlaps = false;
  int num_draft_tokens = 0;  // 0: no speculation
  Device device = {};
  DType dtype = DType::kF32;

  friend void PrintTo(const CachedCase& c, std::ostream* out) { *out << c.name; }
};

class CachedConversations : public testing::TestWithParam<CachedCase> {
 protected:
  void SetUp() override {
    if (GetParam().device == kGpu && cuda::device_count() == 0)
      GTEST_SKIP() << "this machine has no GPU that this build can use";
  }

  EngineConfig config(bool caches) const {
    const CachedCase& c = GetParam();
    EngineConfig config = recurrent_config(caches, c.model);
    config.backend_options.page_size = c.page_size;
    config.device = c.device;
    config.dtype = c.dtype;
    // On a GPU, the other engine replays graphs.
    config.disable_cuda_graph = !caches;
    if (!caches) return config;
    config.chunked_prefill_size = c.chunk;
    config.state_snapshot_interval = c.interval;
    config.max_total_tokens = c.pool_tokens;
    config.overlap_schedule = c.overlaps;
    if (c.pool_tokens > 0) config.schedule.conservativeness = 0.0;
    if (c.num_draft_tokens > 0)
      config.speculation = {.algorithm = SpeculativeAlgorithm::kNgram,
                            .num_draft_tokens = c.num_draft_tokens,
                            .disable_by_batch_size = config.max_running_requests};
    if (c.num_snapshots > 0) config.max_mamba_cache_size = config.max_running_requests + c.num_snapshots;
    return config;
  }
};

// Conversations of several turns and branches, with requests that are aborted on the way.
TEST_P(CachedConversations, GiveTheSameBitsAsAnEngineWithoutCache) {
  Engine cached(config(true)), plain(config(false));
  std::mt19937 generator(7);
  const auto pick = [&](int lowest, int highest) {
    return std::uniform_int_distribution<int>(lowest, highest)(generator);
  };
  std::vector<Tokens> histories = {{}};
  for (int round = 0; round < 40; ++round) {
    const int num_requests = pick(1, 4);
    std::map<RequestId, Tokens> prompts;      // by the id in the cached engine
    std::map<RequestId, RequestId> plain_of;  // id in the plain engine
    for (int i = 0; i < num_requests; ++i) {
      Tokens prompt = histories[static_cast<size_t>(pick(0, static_cast<int>(histories.size()) - 1))];
      if (pick(0, 2) == 0) prompt.resize(static_cast<size_t>(pick(0, static_cast<int>(prompt.size()))));
      if (prompt.size() > 160) prompt.resize(80);
      prompt = joined(std::move(prompt), random_tokens(generator, pick(1, 30)));
      SamplingParams params = sampling(static_cast<uint64_t>(round * 8 + i), pick(1, 40));
      // Greedy answers repeat themselves, so some drafts are accepted.
      if (GetParam().num_draft_tokens > 0 && i % 2 == 0) params.temperature = 0.0f;
      const RequestId id = cached.submit(prompt, params);
      plain_of[id] = plain.submit(prompt, params);
      prompts[id] = prompt;
    }
    const bool aborts = pick(0, 3) == 0;
    const RequestId aborted =
        aborts ? cached.submit(joined(histories.back(), random_tokens(generator, 9)), sampling(1, 30)) : 0;
    if (aborts) {
      for (int step = pick(0, 6); step > 0; --step) cached.step([](const RequestOutput&) {});
      // Answers of these steps are dropped, so the others start again.
      for (const auto& [id, prompt] : prompts) cached.abort(id, [](const RequestOutput&) {});
      cached.abort(aborted, [](const RequestOutput&) {});
      cached.check_memory();
      std::map<RequestId, Tokens> again;
      std::map<RequestId, RequestId> plain_again;
      int i = 0;
      for (const auto& [id, prompt] : prompts) {
        const SamplingParams params = sampling(static_cast<uint64_t>(round * 8 + i++), 12);
        plain.abort(plain_of[id], [](const RequestOutput&) {});
        const RequestId next = cached.submit(prompt, params);
        plain_again[next] = plain.submit(prompt, params);
        again[next] = prompt;
      }
      prompts = again;
      plain_of = plain_again;
    }
    const std::map<RequestId, Answer> got = run_to_the_end(cached), expected = run_to_the_end(plain);
    for (const auto& [id, prompt] : prompts) {
      ASSERT_EQ(got.at(id).tokens, expected.at(plain_of[id]).tokens)
          << "round " << round << ", prompt of " << prompt.size() << " tokens, "
          << got.at(id).num_cached_tokens << " of them cached";
      histories.push_back(joined(prompt, got.at(id).tokens));
    }
    if (histories.size() > 12) histories.erase(histories.begin() + 1, histories.begin() + 4);
  }
  EXPECT_GT(cached.stats().num_cached_tokens, 0);
  if (GetParam().pool_tokens > 0) {
    EXPECT_GT(cached.num_preemptions(), 0);
  }
  if (GetParam().num_draft_tokens > 0) {
    const DraftCounts& drafts = cached.stats().drafts;
    EXPECT_GT(drafts.num_accepted, 0);
    EXPECT_GT(drafts.num_drafted, drafts.num_accepted);
  }
}

const CachedCase kCachedCases[] = {
    {.name = "defaults"},
    {.name = "pages_of_1", .page_size = 1},
    {.name = "pages_of_64", .page_size = 64},
    {.name = "chunks", .chunk = 19},
    {.name = "intervals", .interval = 16},
    {.name = "forks", .interval = 1024},
    {.name = "one_snapshot", .num_snapshots = 1},
    {.name = "three_snapshots", .chunk = 24, .num_snapshots = 3, .interval = 24},
    {.name = "preemption", .pool_tokens = 256},
    {.name = "overlap", .overlaps = true},
    {.name = "mamba2", .model = "bamba-mamba2", .chunk = 24, .interval = 24},
    {.name = "attention_and_mamba2", .model = "falcon-h1-gate-only", .chunk = 24, .interval = 24},
    {.name = "one_sublayer_per_layer", .model = "nemotron-h-experts", .chunk = 24, .interval = 16},
    {.name = "short_convolutions", .model = "lfm2-conv", .chunk = 24, .interval = 16},
    {.name = "drafts", .chunk = 24, .num_draft_tokens = 6},
    {.name = "drafts_and_overlap", .page_size = 1, .overlaps = true, .num_draft_tokens = 4},
    {.name = "drafts_and_preemption", .pool_tokens = 256, .num_draft_tokens = 6},
    {.name = "drafts_of_mamba2", .model = "bamba-mamba2", .num_draft_tokens = 12},
    {.name = "drafts_of_attention_and_mamba2", .model = "falcon-h1-gate-only", .num_draft_tokens = 3},
    {.name = "drafts_of_short_convolutions", .model = "lfm2-conv", .chunk = 24, .num_draft_tokens = 6},
    {.name = "experts", .model = "qwen3-next-grouped", .chunk = 40, .overlaps = true},
    {.name = "kda_and_latents", .model = "kimi-linear-kda", .chunk = 24, .interval = 16, .pool_tokens = 256},
    {.name = "drafts_of_kda", .model = "kimi-linear-kda", .chunk = 24, .num_draft_tokens = 5},
};
std::vector<CachedCase> on_gpu() {
  std::vector<CachedCase> cases;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (CachedCase c : kCachedCases) {
      c.name += "_gpu_" + std::string(to_string(dtype));
      c.device = kGpu;
      c.dtype = dtype;
      cases.push_back(c);
    }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(, CachedConversations, testing::ValuesIn(kCachedCases),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(OnGpu, CachedConversations, testing::ValuesIn(on_gpu()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace attend
