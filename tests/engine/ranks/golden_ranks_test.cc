// Engines on several CPU ranks generate the tokens of one rank, for every tiny model of tests/goldens that
// ranks can divide.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "attend/checkpoint/hf/safetensors.h"
#include "attend/engine/engine.h"
#include "attend/tensor/cuda.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using testing::HasSubstr;
using Tokens = std::vector<int32_t>;

const std::filesystem::path kGoldens = std::filesystem::path(ATTEND_SOURCE_DIR) / "tests/goldens";

std::vector<Tokens> read_prompts(const std::string& golden) {
  const SafetensorsFile file(kGoldens / golden / "golden.safetensors");
  std::vector<Tokens> prompts;
  for (int i = 0;; ++i) {
    const std::string name = "prompt." + std::to_string(i) + ".input_ids";
    if (file.find(name) == nullptr) return prompts;
    const Tensor tensor = file.tensor(name);
    const View<int32_t> ids = tensor.span<int32_t>();
    // One prompt of llama-rope-dynamic is longer than the model's context.
    if (golden == "llama-rope-dynamic" && ids.size() > 120) continue;
    prompts.emplace_back(ids.begin(), ids.end());
  }
}

EngineConfig config_of(const std::string& golden, int num_ranks) {
  EngineConfig config;
  config.model_path = kGoldens / golden;
  config.tp_size = num_ranks;
  config.dtype = DType::kF32;
  config.max_total_tokens = 2048;
  return config;
}

std::vector<Tokens> generate(Engine& engine, const std::vector<Tokens>& prompts, int max_new_tokens = 12) {
  std::vector<Tokens> outputs(prompts.size());
  RequestId first = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const RequestId id = engine.submit(prompts[i], {.max_new_tokens = max_new_tokens, .ignore_eos = true});
    if (i == 0) first = id;
  }
  while (engine.step([&](const RequestOutput& output) {
    Tokens& tokens = outputs[static_cast<size_t>(output.id - first)];
    tokens.insert(tokens.end(), output.token_ids.begin(), output.token_ids.end());
    EXPECT_NE(output.finish_reason, FinishReason::kError) << output.message;
  }))
    engine.check_memory();
  return outputs;
}

std::vector<Tokens> generate(const EngineConfig& config, const std::vector<Tokens>& prompts) {
  Engine engine(config);
  return generate(engine, prompts);
}

class GoldenRanks : public testing::TestWithParam<std::string> {};

TEST_P(GoldenRanks, GenerateTheTokensOfOneRank) {
  const std::vector<Tokens> prompts = read_prompts(GetParam());
  const std::vector<Tokens> expected = generate(config_of(GetParam(), 1), prompts);
  int num_divided = 0;
  for (const int num_ranks : {2, 3, 4}) {
    SCOPED_TRACE(num_ranks);
    try {
      Engine engine(config_of(GetParam(), num_ranks));
      EXPECT_EQ(generate(engine, prompts), expected);
      EXPECT_EQ(engine.failure(), "");
      ++num_divided;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("possible: 1"));
    }
  }
  RecordProperty("num_divided", num_divided);
}

// Models that make text.
std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kGoldens)) {
    const std::string name = entry.path().filename();
    if (!exists(entry.path() / "golden.safetensors") || name.starts_with("draft-") ||
        name.starts_with("embed-") || name.starts_with("score-") || name.starts_with("vision-"))
      continue;
    if (name == "qwen2-5-vl-flat") continue;  // its prompts have placeholders of images

    names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Every, GoldenRanks, testing::ValuesIn(golden_names()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

// Each of these must be divided: a mistake in their limits would otherwise skip them.
TEST(Ranks, DivideEachKindOfModel) {
  for (const auto& [golden, num_ranks] : {std::pair{"llama-mqa24-hd16", 2},
                                          {"llama-mqa24-hd16", 3},
                                          {"llama-mqa24-hd16", 4},
                                          {"qwen3-gqa3-hd256", 3},
                                          {"qwen3-yarn", 4},
                                          {"granite-bf16-tied", 4},
                                          {"gemma2-caps-window", 2},
                                          {"mixtral-top2", 4},
                                          {"gpt-oss-sinks-window", 4},
                                          {"glm4-moe-plain", 2},
                                          {"deepseek-v3", 2},
                                          {"deepseek-v2-lite", 2},
                                          {"qwen3-next-grouped", 4},
                                          {"nemotron-h-experts", 4},
                                          {"falcon-h1-norm-first", 4},
                                          {"gemma4-experts", 2},
                                          {"gemma4-shared-kv", 2},
                                          {"gpt-neox-parallel", 2},
                                          {"falcon-new", 2},
                                          {"internlm3-biases", 4},
                                          {"llama-fp8-channel", 2},
                                          {"llama-int4-packed", 2},
                                          {"llama-awq", 2},
                                          {"qwen3-moe-fp8-blocks", 2}}) {
    SCOPED_TRACE(std::string(golden) + " on " + std::to_string(num_ranks));
    const Engine engine(config_of(golden, num_ranks));
    ASSERT_EQ(std::ssize(engine.info().executors), num_ranks);
    const ExecutorInfo& target = engine.info().target();
    EXPECT_EQ(target.num_ranks, num_ranks);
    const Engine whole(config_of(golden, 1));
    EXPECT_LT(target.weight_bytes, whole.info().weight_bytes());
  }
}

TEST(Ranks, RefuseModelsThatTheyCannotDivide) {
  const auto expect_refused = [](const std::string& golden, int num_ranks,
                                 std::initializer_list<std::string_view> parts) {
    test::expect_error(ErrorCode::kUnsupported, parts, [&] { Engine(config_of(golden, num_ranks)); });
  };
  expect_refused("qwen3-gqa3-hd256", 2, {"tp_size 2: Qwen3ForCausalLM has 3 query heads", "possible: 1, 3"});
  expect_refused("olmo2-post-norms", 2, {"q and k norms over all heads of a token", "possible: 1"});
  expect_refused("llama-gqa4-hd32", 3, {"8 query heads", "possible: 1, 2, 4, 8"});
  expect_refused("qwen2-gptq-act-order", 2, {"tp_size 2", "possible: 1"});
  test::expect_error(ErrorCode::kInvalidArgument, {"tp_size 0: at least 1"},
                     [] { Engine(config_of("qwen3-yarn", 0)); });
}

// Features of an engine that depend on what ranks share, on the bundled model.
class RankFeatures : public testing::Test {
 protected:
  RankFeatures() {
    config_.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
    config_.dtype = DType::kF32;
    config_.max_total_tokens = 2048;
    config_.backend_options.page_size = 16;
    for (const int length : {5, 40, 70, 23}) {
      Tokens& prompt = prompts_.emplace_back();
      // A common prefix of two pages, then text that repeats itself.
      for (int i = 0; i < 32 && length > 32; ++i) prompt.push_back(100 + 3 * i);
      while (std::ssize(prompt) < length) prompt.push_back(200 + static_cast<int>(prompt.size()) % 7);
    }
  }
  void expect_equal_on_ranks() {
    config_.tp_size = 1;
    const std::vector<Tokens> expected = generate(config_, prompts_);
    config_.tp_size = 2;
    engine_.emplace(config_);
    EXPECT_EQ(generate(*engine_, prompts_), expected);
    EXPECT_EQ(generate(*engine_, prompts_), expected) << "with the prefix cache of the first run";
  }

  EngineConfig config_;
  std::vector<Tokens> prompts_;
  std::optional<Engine> engine_;
};

TEST_F(RankFeatures, ReuseCachedPrefixes) {
  expect_equal_on_ranks();
  EXPECT_GT(engine_->stats().num_cached_tokens, 64);
}

TEST_F(RankFeatures, ComputePromptsInChunks) {
  config_.chunked_prefill_size = 16;
  config_.max_running_requests = 3;
  expect_equal_on_ranks();
}

TEST_F(RankFeatures, ResumePreemptedRequests) {
  config_.max_total_tokens = 176;
  config_.schedule.conservativeness = 0.0;
  expect_equal_on_ranks();
  EXPECT_GT(engine_->num_preemptions(), 0);
}

TEST_F(RankFeatures, OverlapSteps) {
  config_.overlap_schedule = true;
  expect_equal_on_ranks();
  EXPECT_GT(engine_->stats().num_overlapped_steps, 0);
}

TEST_F(RankFeatures, VerifyDraftsOfNgrams) {
  config_.speculation = {.algorithm = SpeculativeAlgorithm::kNgram,
                         .num_draft_tokens = 4,
                         .ngram_min_match_window_size = 1,
                         .disable_by_batch_size = 16};
  expect_equal_on_ranks();
  EXPECT_GT(engine_->stats().drafts.num_drafted, 0);
}

TEST_F(RankFeatures, VerifyDraftsOfADraftModel) {
  config_.speculation = {.algorithm = SpeculativeAlgorithm::kStandalone, .disable_by_batch_size = 16};
  config_.speculation.draft_model_path = config_.model_path;
  expect_equal_on_ranks();
  EXPECT_GT(engine_->stats().drafts.num_accepted, 0);
  EXPECT_EQ(engine_->info().executors.size(), 4u);
}

TEST_F(RankFeatures, ReturnTheSameBitsInEveryRun) {
  const SamplingParams hot{.max_new_tokens = 40, .temperature = 1.5f, .seed = 7, .ignore_eos = true};
  config_.tp_size = 3;
  config_.model_path = kGoldens / "llama-mqa24-hd16";
  config_.deterministic_inference = true;
  Tokens first;
  for (int run = 0; run < 3; ++run) {
    Engine engine(config_);
    engine.submit(Tokens{3, 4, 5, 6, 7}, hot);
    Tokens tokens;
    while (engine.step([&](const RequestOutput& output) {
      tokens.insert(tokens.end(), output.token_ids.begin(), output.token_ids.end());
    })) {
    }
    if (run == 0) first = tokens;
    EXPECT_EQ(tokens, first);
  }
  EXPECT_EQ(first.size(), 40u);
}

// Before any test uses CUDA.
const bool kLoadsEagerly = cuda::load_kernels_eagerly();

// Models of each kind on two GPUs, in float32 and with CUDA graphs.
class GpuGoldenRanks : public testing::TestWithParam<const char*> {};

TEST_P(GpuGoldenRanks, GenerateTheTokensOfOneRankOnTheGpu) {
  if (cuda::device_count() < 2) GTEST_SKIP() << "this machine has no two GPUs that this build can use";
  ASSERT_TRUE(kLoadsEagerly);
  const std::vector<Tokens> prompts = read_prompts(GetParam());
  EngineConfig config = config_of(GetParam(), 1);
  config.device = {DeviceType::kCuda, 0};
  const std::vector<Tokens> expected = generate(config, prompts);
  config.tp_size = 2;
  config.watchdog_timeout = std::chrono::seconds(10);
  for (const bool graphs : {false, true}) {
    config.disable_cuda_graph = !graphs;
    Engine engine(config);
    EXPECT_EQ(generate(engine, prompts), expected) << "graphs: " << graphs;
    EXPECT_EQ(engine.failure(), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Every, GpuGoldenRanks,
                         testing::Values("llama-gqa4-hd32", "llama-mqa24-hd16", "qwen3-yarn",
                                         "granite-bf16-tied", "gemma2-caps-window", "glm4-interleaved-rope",
                                         "mixtral-top2", "gpt-oss-sinks-window", "glm4-moe-plain",
                                         "deepseek-v3", "deepseek-v2-lite", "qwen3-next-grouped",
                                         "nemotron-h-dense", "llama-fp8-channel", "llama-int4-packed"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// The draft head reads the target's hidden states, and uses its shards of table and head.
TEST(RankDraftHeads, GenerateTheTokensOfOneRank) {
  const std::vector<Tokens> prompts = {{5, 6, 7}, {9, 8, 7, 6, 5, 4, 3, 2}, {20, 21, 20, 21, 20}, {40}};
  for (const auto& [head, algorithm] : {std::pair{"draft-eagle", SpeculativeAlgorithm::kEagle},
                                        {"draft-eagle3", SpeculativeAlgorithm::kEagle3}}) {
    SCOPED_TRACE(head);
    EngineConfig config = config_of("draft-target", 1);
    config.speculation = {
        .algorithm = algorithm, .draft_model_path = kGoldens / head, .disable_by_batch_size = 16};
    Engine one(config);
    const std::vector<Tokens> expected = generate(one, prompts);
    config.tp_size = 2;
    Engine two(config);
    EXPECT_EQ(generate(two, prompts), expected);
    EXPECT_GT(two.stats().drafts.num_drafted, 0);
    EXPECT_EQ(two.stats().drafts.num_accepted, one.stats().drafts.num_accepted);
  }
}

}  // namespace
}  // namespace attend
