// Engine on a tiny random Llama (tests/goldens): batching, chunking, page sizes, backends and preemption do
// not change a request's tokens, and invalid input is rejected.
#include "attend/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "attend/backends/table.h"
#include "attend/base/error.h"

namespace attend {
namespace {

using testing::HasSubstr;

const std::filesystem::path kModel = ATTEND_SOURCE_DIR "/tests/goldens/llama-gqa4-hd32";
const std::filesystem::path kTiny = ATTEND_SOURCE_DIR "/models/attend-tiny";

EngineConfig make_config(const std::filesystem::path& model) {
  EngineConfig config;
  config.model_path = model;
  return config;
}

std::vector<int32_t> random_prompt(int num_tokens, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int32_t> token(2, 127);
  std::vector<int32_t> prompt(static_cast<size_t>(num_tokens));
  for (int32_t& id : prompt) id = token(random);
  return prompt;
}

struct Result {
  std::vector<int32_t> output;
  std::string text;
  FinishReason reason = FinishReason::kNone;
  int num_preemptions = 0;
  bool operator==(const Result& other) const { return output == other.output && reason == other.reason; }
};

// Runs the engine until all requests have finished.
std::map<RequestId, Result> finish_all(Engine& engine) {
  std::map<RequestId, Result> results;
  while (engine.step([&](const RequestOutput& output) {
    Result& result = results[output.id];
    result.output.insert(result.output.end(), output.token_ids.begin(), output.token_ids.end());
    result.text += output.text;
    result.reason = output.finish_reason;
    result.num_preemptions = output.request.num_preemptions;
  })) {
  }
  EXPECT_EQ(engine.num_used_slots(), 0);
  return results;
}

Result complete_single(const EngineConfig& config, const std::vector<int32_t>& prompt,
                       const SamplingParams& params) {
  Engine engine(config);
  const RequestId id = engine.submit(prompt, params);
  return finish_all(engine).at(id);
}

// Submits all prompts at once.
std::vector<Result> complete_batch(const EngineConfig& config,
                                   const std::vector<std::vector<int32_t>>& prompts,
                                   const SamplingParams& params) {
  Engine engine(config);
  std::vector<RequestId> ids;
  for (const auto& prompt : prompts) ids.push_back(engine.submit(prompt, params));
  auto results = finish_all(engine);
  std::vector<Result> ordered;
  for (RequestId id : ids) ordered.push_back(results.at(id));
  return ordered;
}

const std::vector<std::vector<int32_t>> kPrompts = {random_prompt(5, 1), random_prompt(33, 2),
                                                    random_prompt(1, 3), random_prompt(100, 4),
                                                    random_prompt(17, 5)};
const SamplingParams kGreedy{.max_new_tokens = 24, .ignore_eos = true};

TEST(Engine, ProducesTheSameTokensSinglyAndInABatch) {
  const EngineConfig config = make_config(kModel);
  const auto together = complete_batch(config, kPrompts, kGreedy);
  for (size_t i = 0; i < kPrompts.size(); ++i)
    EXPECT_EQ(together[i], complete_single(config, kPrompts[i], kGreedy)) << "prompt " << i;
}

TEST(Engine, ProducesTheSameTokensForEveryPageSize) {
  EngineConfig config = make_config(kModel);
  const auto expected = complete_batch(config, kPrompts, kGreedy);
  for (int page_size : {1, 2, 64, 256}) {
    config.backend_options.page_size = page_size;
    EXPECT_EQ(complete_batch(config, kPrompts, kGreedy), expected) << "page size " << page_size;
  }
}

TEST(Engine, ProducesTheSameTokensWhenPromptsAreComputedInChunks) {
  EngineConfig config = make_config(kModel);
  const auto expected = complete_batch(config, kPrompts, kGreedy);
  config.max_running_requests = 5;
  for (int chunk : {5, 7, 32}) {
    config.chunked_prefill_size = chunk;
    EXPECT_EQ(complete_batch(config, kPrompts, kGreedy), expected) << "chunk " << chunk;
  }
}

TEST(Engine, ProducesTheSameTokensAfterPreemption) {
  EngineConfig config = make_config(kModel);
  const auto expected = complete_batch(config, kPrompts, kGreedy);
  config.backend_options.page_size = 4;
  config.max_total_tokens = 160;  // all prompts together need 256
  config.schedule.conservativeness = 0.0;
  const auto preempted = complete_batch(config, kPrompts, kGreedy);
  EXPECT_EQ(preempted, expected);
  int num_preemptions = 0;
  for (const Result& result : preempted) num_preemptions += result.num_preemptions;
  EXPECT_GT(num_preemptions, 0) << "the pool was not full: the test checks nothing";
}

TEST(Engine, ProducesTheSameTokensWithEveryRegisteredBackend) {
  EngineConfig config = make_config(kModel);
  const auto expected = complete_batch(config, kPrompts, kGreedy);
  for (const char* name : {"torch_native", "cpu", "triton", "flashinfer", "fa3", "fa4", "trtllm_mha"}) {
    config.backend_options.attention_backend = name;
    EXPECT_EQ(complete_batch(config, kPrompts, kGreedy), expected) << name;
  }
}

// A custom backend: attend's CPU backend with a counter.
int num_forwards = 0;
class CountingBackend : public AttentionBackend {
 public:
  explicit CountingBackend(std::unique_ptr<AttentionBackend> inner) : inner_(std::move(inner)) {}
  void plan(const ForwardBatch& batch, Stream& stream) override { inner_->plan(batch, stream); }
  KvDestination destination(const AttentionLayer& layer, const ForwardBatch& batch) override {
    return inner_->destination(layer, batch);
  }
  void forward(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
               Stream& stream) override {
    ++num_forwards;
    inner_->forward(layer, input, batch, stream);
  }

 private:
  std::unique_ptr<AttentionBackend> inner_;
};
constexpr BackendSpec kCountedSpec{.index = kernels::KvIndexKind::kCsr};

TEST(Engine, RunsACustomBackendByName) {
  EngineConfig config = make_config(kModel);
  const auto expected = complete_batch(config, kPrompts, kGreedy);
  std::vector<BackendEntry> table(backend_table().begin(), backend_table().end());
  BackendEntry mine = *find_backend(table, "cpu");
  mine.name = "mine";
  mine.aliases = {};
  mine.create = [](const BackendContext& context) -> std::unique_ptr<AttentionBackend> {
    return std::make_unique<CountingBackend>(create_kernel_backend(kCountedSpec, context));
  };
  mine.workspace_bytes = workspace_bytes_with_spec<kCountedSpec>;
  table.push_back(mine);
  config.backends = table;
  config.backend_options.attention_backend = "mine";
  num_forwards = 0;
  EXPECT_EQ(complete_batch(config, kPrompts, kGreedy), expected);
  EXPECT_GT(num_forwards, 0);
  config.backends = {};
  EXPECT_THROW(Engine{config}, Error) << "the built-in table has no such backend";
}

TEST(Engine, ProducesTheSameTokensWhenMaxKvTokensLimitsSteps) {
  EngineConfig config = make_config(kModel);
  const auto expected = complete_batch(config, kPrompts, kGreedy);
  config.max_kv_tokens = 150;
  const auto limited = complete_batch(config, kPrompts, kGreedy);
  EXPECT_EQ(limited, expected);
  config.max_kv_tokens = 110;  // the longest prompt ends at this length
  const auto cut = complete_single(config, kPrompts[3], kGreedy);
  EXPECT_EQ(cut.reason, FinishReason::kLength);
  EXPECT_EQ(cut.output.size(), 10u);
}

TEST(Engine, RoutesPrefillAndDecodeToDifferentBackends) {
  EngineConfig config = make_config(kModel);
  const auto expected = complete_batch(config, kPrompts, kGreedy);
  config.backend_options.prefill_backend = "torch_native";
  config.backend_options.decode_backend = "flashinfer";
  EXPECT_EQ(complete_batch(config, kPrompts, kGreedy), expected);
}

TEST(Engine, SamplesTheSameTokensForASeedInAnyBatch) {
  const EngineConfig config = make_config(kModel);
  const SamplingParams params{
      .max_new_tokens = 24, .temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .seed = 7, .ignore_eos = true};
  const auto together = complete_batch(config, kPrompts, params);
  for (size_t i = 0; i < kPrompts.size(); ++i)
    EXPECT_EQ(together[i], complete_single(config, kPrompts[i], params)) << "prompt " << i;
  SamplingParams other = params;
  other.seed = 8;
  EXPECT_NE(complete_batch(config, kPrompts, other), together);
}

TEST(Engine, StopsAtTheLimitAndAtStopTokens) {
  const EngineConfig config = make_config(kModel);
  const Result free_run = complete_single(config, kPrompts[0], kGreedy);
  EXPECT_EQ(free_run.reason, FinishReason::kLength);
  EXPECT_EQ(free_run.output.size(), 24u);
  SamplingParams params = kGreedy;
  params.stop_token_ids = {free_run.output[5]};
  const Result stopped = complete_single(config, kPrompts[0], params);
  EXPECT_EQ(stopped.reason, FinishReason::kStop);
  EXPECT_LE(stopped.output.size(), 6u);
  EXPECT_EQ(stopped.output.back(), free_run.output[5]);
}

TEST(Engine, StopsWhenTheContextIsFull) {
  EngineConfig config = make_config(kModel);
  config.context_length = 12;
  const Result result = complete_single(config, kPrompts[0], kGreedy);
  EXPECT_EQ(result.reason, FinishReason::kLength);
  EXPECT_EQ(result.output.size(), 7u);
}

// The rope table grows with the context.
TEST(Engine, ContinuesPastThePositionsOfTheModel) {
  EngineConfig config = make_config(kModel);
  config.context_length = 300;
  const std::vector<int32_t> prompt = random_prompt(270, 1);
  const Result extended = complete_single(config, prompt, kGreedy);
  EXPECT_EQ(extended.output.size(), 24u);
  config.model = read_config(kModel);
  config.model->max_position_embeddings = 300;
  EXPECT_EQ(extended, complete_single(config, prompt, kGreedy));
}

const std::filesystem::path kLongRope = ATTEND_SOURCE_DIR "/tests/goldens/phi3-longrope";
constexpr size_t kOriginalLength = 32;  // original_max_position_embeddings

// After the original length, the answer is that of a prompt with the same tokens, whose keys all have the
// long factors.
TEST(Engine, RecomputesARequestThatBecomesLongerThanLongRopesOriginalLength) {
  EngineConfig config = make_config(kLongRope);
  config.recompute_longrope = true;
  for (const bool has_cache : {true, false}) {
    config.disable_radix_cache = !has_cache;
    std::vector<int32_t> prompt = random_prompt(20, 3);
    const Result result = complete_single(config, prompt, kGreedy);
    EXPECT_EQ(result.num_preemptions, 1);
    ASSERT_EQ(result.output.size(), 24u);
    const auto switched = result.output.begin() + (kOriginalLength + 1 - prompt.size());
    prompt.insert(prompt.end(), result.output.begin(), switched);
    const Result longer = complete_single(config, prompt, kGreedy);
    EXPECT_EQ(longer.num_preemptions, 0);
    EXPECT_TRUE(std::equal(switched, result.output.end(), longer.output.begin()));
  }
}

TEST(Engine, KeepsTheKeysOfAnAnswerPastLongRopesOriginalLengthByDefault) {
  EXPECT_EQ(complete_single(make_config(kLongRope), random_prompt(20, 3), kGreedy).num_preemptions, 0);
}

TEST(Engine, StopsWhenOneRequestFillsTheWholePool) {
  EngineConfig config = make_config(kModel);
  config.backend_options.page_size = 4;
  config.max_total_tokens = 12;
  const Result result = complete_single(config, kPrompts[0], kGreedy);
  EXPECT_EQ(result.reason, FinishReason::kLength);
  EXPECT_EQ(result.output.size(), 7u);
}

TEST(Engine, StopStringsCutTheText) {
  Engine engine(make_config(kTiny));
  const SamplingParams params{.max_new_tokens = 16, .ignore_eos = true};
  const RequestId whole = engine.submit("copy: laugh [ scout coffee writer pea ] roll milk ->", params);
  const std::string text = finish_all(engine).at(whole).text;
  ASSERT_GT(text.size(), 6u);
  SamplingParams stopping = params;
  stopping.stop = {text.substr(3, 3)};
  const RequestId cut = engine.submit("copy: laugh [ scout coffee writer pea ] roll milk ->", stopping);
  const Result result = finish_all(engine).at(cut);
  EXPECT_EQ(result.reason, FinishReason::kStop);
  EXPECT_EQ(result.text, text.substr(0, text.find(stopping.stop[0])));
}

TEST(Engine, FreesAllSlotsAfterEveryRequest) {
  Engine engine(make_config(kModel));
  for (const auto& prompt : kPrompts) engine.submit(prompt, kGreedy);
  finish_all(engine);
  EXPECT_GT(engine.stats().peak_used_slots, 0);
  EXPECT_EQ(engine.num_used_slots(), 0);
}

// Message of the Error that `action` throws.
template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(EngineErrors, RejectAnImageTokenForATextModel) {
  EngineConfig config;
  config.model_path = ATTEND_SOURCE_DIR "/tests/goldens/llama4-interleaved";
  config.max_total_tokens = 256;
  Engine engine(config);
  EXPECT_EQ(
      error_of([&] {
        engine.submit({5, 127}, {});
      }),
      "token id 127: the placeholder of an image; Llama4ForConditionalGeneration is supported with text "
      "only");
}

TEST(EngineErrors, RejectedPromptLeaksNoMemory) {
  EngineConfig config = make_config(kModel);
  config.context_length = 64;
  Engine engine(config);
  const RequestId good = engine.submit(kPrompts[0], kGreedy);
  const auto submit = [&](std::vector<int32_t> prompt, const SamplingParams& params = {}) {
    return error_of([&] { engine.submit(std::move(prompt), params); });
  };
  EXPECT_EQ(submit({}), "prompt: no tokens");
  EXPECT_EQ(submit({5, 128}), "token id 128: 0 to 127");
  EXPECT_EQ(submit({-1}), "token id -1: 0 to 127");
  EXPECT_THAT(submit(random_prompt(64, 1)), HasSubstr("prompt of 64 tokens: the context length is 64"));
  EXPECT_THAT(submit({5}, {.max_new_tokens = -1}), HasSubstr("max_new_tokens -1: at least 0"));
  EXPECT_THAT(submit({5}, {.temperature = -1.0f}), HasSubstr("temperature -1"));
  EXPECT_THAT(submit({5}, {.top_p = 0.0f}), HasSubstr("top_p 0"));
  EXPECT_THAT(submit({5}, {.min_p = 1.5f}), HasSubstr("min_p 1.5"));
  EXPECT_THAT(submit({5}, {.top_k = -2}), HasSubstr("top_k -2"));
  EXPECT_THAT(submit({5}, {.stop_token_ids = {128}}), HasSubstr("stop_token_ids: 128: 0 to 127"));
  EXPECT_THAT(submit({5}, {.stop = {"x"}}), HasSubstr("tokenizer.json"));
  EXPECT_THAT(error_of([&] { engine.submit("text", {}); }), HasSubstr("tokenizer.json"));
  EXPECT_EQ(finish_all(engine).at(good).output.size(), 24u);
  const RequestId greedy_for_tokens =
      engine.submit(kPrompts[0], {.max_new_tokens = 2147483647, .ignore_eos = true});
  EXPECT_EQ(finish_all(engine).at(greedy_for_tokens).output.size(), 64u - kPrompts[0].size());
}

TEST(EngineErrors, NameTheUnsupportedOption) {
  const auto start = [](auto change) {
    EngineConfig config = make_config(kModel);
    change(config);
    return error_of([&] { Engine engine(config); });
  };
  EXPECT_THAT(start([](EngineConfig& c) { c.backend_options.page_size = 3; }), HasSubstr("page_size 3"));
  EXPECT_THAT(start([](EngineConfig& c) { c.backend_options.page_size = 0; }), HasSubstr("page_size 0"));
  EXPECT_THAT(start([](EngineConfig& c) { c.backend_options.attention_backend = "fa5"; }),
              HasSubstr("attention backend 'fa5': expected one of torch_native, cpu"));
  EXPECT_THAT(start([](EngineConfig& c) { c.backend_options.attention_backend = "flashmla"; }),
              HasSubstr("MLA only"));
  EXPECT_THAT(start([](EngineConfig& c) {
                c.backend_options.attention_backend = "trtllm_mha";
                c.backend_options.page_size = 8;
              }),
              HasSubstr("page_size 8: trtllm_mha needs 16, 32, 64, 128"));
  EXPECT_THAT(start([](EngineConfig& c) { c.context_length = 1; }), HasSubstr("context_length 1: 2 to "));
  EXPECT_THAT(start([](EngineConfig& c) {
                c.model_path = ATTEND_SOURCE_DIR "/tests/goldens/gpt2-bare-names";
                c.context_length = 257;
              }),
              HasSubstr("context_length 257: 2 to 256, the number of learned positions"));
  EXPECT_THAT(start([](EngineConfig& c) { c.recompute_longrope = true; }),
              HasSubstr("recompute_longrope: expected a model with RoPE type longrope"));
  EXPECT_THAT(start([](EngineConfig& c) {
                c.model_path = kLongRope;
                c.recompute_longrope = c.overlap_schedule.emplace(true);
              }),
              HasSubstr("recompute_longrope: not with overlap_schedule"));
  EXPECT_THAT(start([](EngineConfig& c) { c.max_total_tokens = int64_t{1} << 40; }),
              HasSubstr("max_total_tokens"));
  EXPECT_THAT(start([](EngineConfig& c) { c.model_path = "/nowhere"; }), HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace attend
