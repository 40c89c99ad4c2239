// Deterministic inference: log probabilities of a sampled answer are those of scoring the same tokens as a
// prompt, bit for bit, as reinforcement learning requires.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "attend/engine/engine.h"

namespace attend {
namespace scored_answers {

using Tokens = std::vector<int32_t>;
namespace fs = std::filesystem;

const fs::path kGoldens = fs::path(ATTEND_SOURCE_DIR) / "tests/goldens";

struct ScoredModel {
  const char* name;
  std::vector<const char*> adapters = {};
  int tp_size = 1;
  bool overlaps = false;
  int num_draft_tokens = 0;

  friend void PrintTo(const ScoredModel& model, std::ostream* out) {
    *out << model.name << ", " << model.adapters.size() << " adapters, ranks " << model.tp_size
         << (model.overlaps ? ", overlap" : "") << ", drafts of " << model.num_draft_tokens;
  }
};

struct Sampled {
  Tokens tokens;  // with the prompt
  int num_prompt = 0;
  std::string adapter;
  std::vector<float> logprobs;  // of the answer
};

EngineConfig make_config(const ScoredModel& model, int page_size, bool caches) {
  EngineConfig config;
  config.model_path = kGoldens / model.name;
  config.deterministic_inference = true;
  config.context_length = 256;
  config.max_running_requests = 6;
  config.chunked_prefill_size = 24;
  config.backend_options.page_size = page_size;
  config.disable_radix_cache = !caches;
  config.tp_size = model.tp_size;
  config.overlap_schedule = model.overlaps;
  if (model.num_draft_tokens > 0)
    config.speculation = {.algorithm = SpeculativeAlgorithm::kNgram,
                          .num_draft_tokens = model.num_draft_tokens,
                          .disable_by_batch_size = 6};
  for (const char* adapter : model.adapters)
    config.lora_paths.push_back({.name = adapter, .path = kGoldens / "lora" / model.name / adapter});
  return config;
}

// Answers six requests together: greedy and sampled ones, with and without adapters.
std::vector<Sampled> sample(Engine& engine, const ScoredModel& model) {
  std::vector<Sampled> sampled(6);
  for (size_t i = 0; i < sampled.size(); ++i) {
    Tokens prompt;
    for (size_t t = 0; t < 5 + 13 * i; ++t) prompt.push_back(static_cast<int32_t>(2 + (i * 17 + t * 7) % 60));
    sampled[i].num_prompt = static_cast<int>(prompt.size());
    if (!model.adapters.empty() && i % 3 != 0) sampled[i].adapter = model.adapters[i % model.adapters.size()];
    engine.submit({.prompt = prompt,
                   .params = {.max_new_tokens = 20 + static_cast<int>(i),
                              .temperature = i % 2 == 0 ? 0.0f : 1.3f,
                              .seed = 7 + i,
                              .ignore_eos = true,
                              .logprobs = 0},
                   .adapter = sampled[i].adapter});
  }
  while (engine.step([&](const RequestOutput& output) {
    EXPECT_NE(output.finish_reason, FinishReason::kError) << output.message;
    Sampled& one = sampled[static_cast<size_t>(output.id - 1)];
    one.logprobs.insert(one.logprobs.end(), output.logprobs.logprobs.begin(), output.logprobs.logprobs.end());
    if (output.finished()) one.tokens = output.request.tokens;
  })) {
  }
  return sampled;
}

// Scores prompt and answer as one prompt, and returns the answer's part.
std::vector<float> score(Engine& engine, const Sampled& sampled) {
  std::vector<float> logprobs;
  engine.submit({.prompt = sampled.tokens,
                 .params = {.max_new_tokens = 1, .logprobs = 0, .prompt_logprobs = true},
                 .adapter = sampled.adapter});
  while (engine.step([&](const RequestOutput& output) {
    const auto& scored = output.prompt_logprobs.logprobs;
    logprobs.insert(logprobs.end(), scored.begin(), scored.end());
  })) {
  }
  if (logprobs.size() + 1 != sampled.tokens.size()) return {};
  logprobs.erase(logprobs.begin(), logprobs.begin() + sampled.num_prompt - 1);
  return logprobs;
}

class ScoredAnswers : public testing::TestWithParam<ScoredModel> {};

TEST_P(ScoredAnswers, HaveTheLogprobsOfTheirTokens) {
  for (const int page_size : {1, 16})
    for (const bool caches : {false, true}) {
      SCOPED_TRACE("page size " + std::to_string(page_size) + (caches ? ", prefix cache" : ""));
      const EngineConfig config = make_config(GetParam(), page_size, caches);
      Engine engine(config), other(config);
      const std::vector<Sampled> sampled = sample(engine, GetParam());
      for (const Sampled& one : sampled) {
        ASSERT_EQ(one.logprobs.size() + static_cast<size_t>(one.num_prompt), one.tokens.size());
        EXPECT_EQ(score(engine, one), one.logprobs) << "by the engine that sampled, " << one.adapter;
        EXPECT_EQ(score(other, one), one.logprobs) << "by another engine, " << one.adapter;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Models, ScoredAnswers,
                         testing::Values(ScoredModel{"llama-gqa4-hd32", {"all-linear", "rank1-list"}},
                                         ScoredModel{"llama-gqa4-hd32", {}, /*tp_size=*/2},
                                         ScoredModel{"llama-gqa4-hd32", {}, 1, /*overlaps=*/true},
                                         ScoredModel{"llama-gqa4-hd32", {}, 1, false, /*num_draft_tokens=*/4},
                                         ScoredModel{"llama-bf16", {"bfloat16"}},
                                         ScoredModel{"gemma2-caps-window"}, ScoredModel{"qwen3-fp8-blocks"},
                                         ScoredModel{"mixtral-top2"}, ScoredModel{"deepseek-v3"},
                                         ScoredModel{"qwen3-5-text-tied"}, ScoredModel{"bamba-mamba2"}));

}  // namespace scored_answers
}  // namespace attend
