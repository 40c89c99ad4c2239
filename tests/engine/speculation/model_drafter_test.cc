// Draft models and draft heads: requests get the same bits as without drafts for every draft model. Drafts
// depend on the request's tokens only, and every draft of a model that equals the target is accepted, because
// the K/V of the draft model are those of the request's tokens after prefix hits, chunks, preemptions, aborts
// and pauses.
//   ATTEND_DRAFT_RUNS: number of random runs
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>

#include "attend/base/error.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/hf/safetensors.h"
#include "attend/engine/engine.h"
#include "attend/kernels/sampling/sampling.h"
#include "attend/tensor/cuda.h"
#include "tests/support/error_message.h"
#include "tests/support/overflowing_model.h"

namespace attend::model_drafter_test {
namespace {

using testing::HasSubstr;
using testing_support::error_message;

std::filesystem::path golden(const std::string& name) { return ATTEND_SOURCE_DIR "/tests/goldens/" + name; }

// Model with the weights of llama-gqa4-hd32, some of them scaled, which predicts some of its tokens.
std::filesystem::path similar_llama() {
  static const std::filesystem::path path = [] {
    const auto folder = std::filesystem::path(testing::TempDir()) / "attend_similar_llama";
    std::filesystem::remove_all(folder);
    std::filesystem::copy(golden("llama-gqa4-hd32"), folder);
    testing_support::change_weights(folder / "model.safetensors",
                                    [](const std::string& name, int64_t row, int64_t column, float& value) {
                                      if (name.find("layers.1.mlp.down") != std::string::npos)
                                        value *= (row + column) % 2 == 0 ? 0.8f : 1.2f;
                                    });
    return folder;
  }();
  return path;
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  FinishReason reason = FinishReason::kNone;
  DraftCounts counts;
};
using Key = std::pair<RequestId, int>;
using Answers = std::map<Key, Answer>;
// Drafts of each completion, by the number of its tokens before them.
using Drafts = std::map<Key, std::map<int, std::vector<int32_t>>>;

struct DraftedRun {
  Answers answers;
  Drafts drafts;
  EngineStats stats;
  int64_t num_preemptions = 0;
};

// A grammar that allows every third token, depending on the tokens before.
class CountingMask final : public TokenMask {
 public:
  bool fill(std::span<uint32_t> words) override {
    std::ranges::fill(words, 0u);
    for (int id = sum_ % 3; id < 128; id += 3)
      words[static_cast<size_t>(id / 32)] |= uint32_t{1} << (id % 32);
    return true;
  }
  void accept(int32_t token_id) override { sum_ += token_id + 1; }
  std::shared_ptr<TokenMask> fork() const override { return std::make_shared<CountingMask>(); }

 private:
  int sum_ = 0;
};

struct TestRequest {
  GenerationRequest request;
  bool has_mask = false;
  int submitted_at = 0;    // step
  int aborted_after = -1;  // steps after its submission; -1: not aborted

  GenerationRequest make() const {
    GenerationRequest made = request;
    if (has_mask) made.mask = std::make_shared<CountingMask>();
    return made;
  }
  bool is_greedy() const {
    const SamplingParams& params = request.params;
    return params.temperature == 0.0f && params.frequency_penalty == 0.0f && !has_mask;
  }
};

std::vector<int32_t> prompt_tokens(int first, int num_tokens) {
  std::vector<int32_t> prompt(static_cast<size_t>(num_tokens));
  for (int i = 0; i < num_tokens; ++i)
    prompt[static_cast<size_t>(i)] = 2 + (31 * first + 7 * (i % 9) + i / 23) % 126;
  return prompt;
}

TestRequest make_request(int first, int num_prompt, int max_new_tokens) {
  return {.request = {.prompt = prompt_tokens(first, num_prompt),
                      .params = {.max_new_tokens = max_new_tokens, .ignore_eos = true, .logprobs = 0}}};
}

std::vector<TestRequest> make_requests(int count, int max_new_tokens = 24) {
  std::vector<TestRequest> requests;
  for (int i = 0; i < count; ++i) requests.push_back(make_request(i, 9 + 11 * i, max_new_tokens + 3 * i));
  return requests;
}

EngineConfig make_config(const std::string& model, DeviceType device = DeviceType::kCpu) {
  EngineConfig config;
  config.model_path = golden(model);
  config.device.type = device;
  config.dtype = config.kv_cache_dtype = DType::kF32;
  config.deterministic_inference = true;
  if (device == DeviceType::kCuda) config.cuda_graph_max_bs = 8;
  return config;
}

SpeculativeOptions standalone(const std::filesystem::path& draft, int num_steps = 3) {
  return {.algorithm = SpeculativeAlgorithm::kStandalone,
          .draft_model_path = draft,
          .num_steps = num_steps,
          .disable_by_batch_size = 16};
}

// Submits and aborts requests between steps.
DraftedRun run(const EngineConfig& config, const std::vector<TestRequest>& requests, bool aborts = true) {
  Engine engine(config);
  DraftedRun run;
  const OutputSink sink = [&](const RequestOutput& output) {
    Answer& answer = run.answers[{output.id, output.index}];
    EXPECT_EQ(answer.reason, FinishReason::kNone) << "an output after the last one";
    answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
    answer.logprobs.insert(answer.logprobs.end(), output.logprobs.logprobs.begin(),
                           output.logprobs.logprobs.end());
    answer.reason = output.finish_reason;
    const RequestDraft& draft = output.request.draft;
    const int64_t num_drafted = draft.counts.num_drafted - answer.counts.num_drafted;
    if (num_drafted > 0 && !output.finished())
      run.drafts[{output.id, output.index}]
                [output.request.num_tokens() - static_cast<int>(output.token_ids.size())]
                    .assign(draft.tokens.begin(), draft.tokens.begin() + num_drafted);
    answer.counts = draft.counts;
  };
  std::vector<RequestId> ids(requests.size(), -1);
  for (int step = 0;; ++step) {
    bool all_submitted = true;
    for (size_t i = 0; i < requests.size(); ++i) {
      const TestRequest& request = requests[i];
      if (ids[i] < 0 && request.submitted_at <= step) ids[i] = engine.submit(request.make());
      all_submitted &= ids[i] >= 0;
      if (aborts && ids[i] >= 0 && request.aborted_after == step - request.submitted_at)
        engine.abort(ids[i], sink);
    }
    const bool worked = engine.step(sink);
    engine.check_memory();
    if (!worked && all_submitted) break;
  }
  EXPECT_EQ(engine.num_used_slots(), 0);
  EXPECT_EQ(engine.stats().num_recoveries, 0);
  EXPECT_EQ(engine.stats().num_failed_steps, 0);
  run.stats = engine.stats();
  run.num_preemptions = engine.num_preemptions();
  return run;
}

// Runs the requests without and with drafts, expects equal bits, and returns the run with drafts. An aborted
// request gets the first tokens of its answer.
DraftedRun expect_same(EngineConfig config, const std::vector<TestRequest>& requests) {
  EngineConfig plain_config = config;
  plain_config.speculation = {};
  const DraftedRun plain = run(plain_config, requests, false);
  DraftedRun drafted = run(config, requests);
  EXPECT_EQ(drafted.answers.size(), plain.answers.size());
  for (const auto& [key, answer] : drafted.answers) {
    SCOPED_TRACE(testing::Message() << "request " << key.first << ", completion " << key.second);
    const Answer& whole = plain.answers.at(key);
    if (answer.reason == FinishReason::kAbort) {
      EXPECT_LE(answer.tokens.size(), whole.tokens.size());
      EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), whole.tokens.begin()));
      continue;
    }
    EXPECT_EQ(answer.reason, whole.reason);
    EXPECT_EQ(answer.tokens, whole.tokens);
    EXPECT_EQ(answer.logprobs, whole.logprobs);
  }
  return drafted;
}

// Expects that the drafts of the requests, as far as both runs have some, are equal.
void expect_same_drafts(const DraftedRun& expected, const DraftedRun& actual) {
  size_t num_compared = 0;
  for (const auto& [key, drafts] : actual.drafts)
    for (const auto& [num_tokens, draft] : drafts) {
      const auto completion = expected.drafts.find(key);
      if (completion == expected.drafts.end() || !completion->second.contains(num_tokens)) continue;
      const std::vector<int32_t>& other = completion->second.at(num_tokens);
      const size_t count = std::min(draft.size(), other.size());
      EXPECT_TRUE(std::equal(draft.begin(), draft.begin() + static_cast<int64_t>(count), other.begin()))
          << "draft of request " << key.first << " after " << num_tokens
          << " tokens: " << testing::PrintToString(draft) << ", expected " << testing::PrintToString(other);
      num_compared += count;
    }
  EXPECT_GT(num_compared, 0u) << "the test checks too little";
}

// Config of an engine that computes one request at a time and shares no pages.
EngineConfig one_by_one(EngineConfig config) {
  config.max_running_requests = 1;
  config.disable_radix_cache = true;
  config.chunked_prefill_size = 512;
  config.max_total_tokens = 0;
  config.speculation.disable_by_batch_size = 16;
  return config;
}

void expect_all_accepted(const DraftedRun& run) {
  EXPECT_GT(run.stats.drafts.num_drafted, 0) << "the test checks too little";
  EXPECT_EQ(run.stats.drafts.num_accepted, run.stats.drafts.num_drafted);
}

class ModelDrafter : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceType::kCuda && cuda::device_count() == 0)
      GTEST_SKIP() << "this machine has no GPU that this build can use";
  }
  // The draft model equals the target.
  EngineConfig self_drafting(const std::string& model, int num_steps = 3) {
    EngineConfig config = make_config(model, GetParam());
    config.speculation = standalone(golden(model), num_steps);
    return config;
  }
};
INSTANTIATE_TEST_SUITE_P(Device, ModelDrafter, testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         [](const auto& device) { return device.param == DeviceType::kCpu ? "Cpu" : "Gpu"; });

TEST_P(ModelDrafter, AcceptsEveryDraftOfAModelThatEqualsTheTarget) {
  for (const char* model : {"llama-gqa4-hd32", "deepseek-v2-lite", "gemma3-layer-ropes",
                            "gpt-oss-sinks-window", "llama4-chunks", "qwen3-moe-some-dense"}) {
    SCOPED_TRACE(model);
    const DraftedRun drafted = expect_same(self_drafting(model), make_requests(4));
    expect_all_accepted(drafted);
    EXPECT_GT(drafted.stats.drafts.accept_length(), 3.5);
  }
}

TEST_P(ModelDrafter, AcceptsEveryDraftForAnyNumberOfSteps) {
  for (const int num_steps : {1, 2, 5, 9})
    expect_all_accepted(expect_same(self_drafting("llama-gqa4-hd32", num_steps), make_requests(3)));
}

// K/V of drafts that were rejected, or accepted without K/V of the last one, are computed again.
TEST_P(ModelDrafter, ProducesTheSameBitsWithAnyDraftModel) {
  EngineConfig config = make_config("llama-gqa4-hd32", GetParam());
  for (const std::filesystem::path& draft : {similar_llama(), golden("qwen3-gqa2-hd128"),
                                             golden("deepseek-v2-lite"), golden("mistral-window-hd128")}) {
    SCOPED_TRACE(draft);
    config.speculation = standalone(draft, 4);
    std::vector<TestRequest> requests = make_requests(5, 40);
    requests[1].request.params.temperature = 0.3f;
    requests[2].request.params.frequency_penalty = 0.05f;
    const DraftCounts drafts = expect_same(config, requests).stats.drafts;
    EXPECT_LT(drafts.num_accepted, drafts.num_drafted);
    if (draft == similar_llama()) {
      EXPECT_GT(drafts.num_accepted, drafts.num_drafted / 4) << "the test checks too little";
    }
  }
}

TEST_P(ModelDrafter, DraftsForTargetsWithRecurrentLayers) {
  for (const char* model : {"qwen3-next-grouped", "granite-hybrid-dense", "lfm2-conv"}) {
    SCOPED_TRACE(model);
    EngineConfig config = make_config(model, GetParam());
    config.speculation = standalone(golden("llama-gqa4-hd32"));
    EXPECT_GT(expect_same(config, make_requests(3)).stats.drafts.num_drafted, 0);
  }
}

// The second request begins after pages that were computed before the draft model knew them.
TEST_P(ModelDrafter, ComputesCachedPagesThatTheDraftModelHasNot) {
  for (const int page_size : {1, 4, 16}) {
    EngineConfig config = self_drafting("llama-gqa4-hd32");
    config.backend_options.page_size = page_size;
    config.chunked_prefill_size = 32;
    std::vector<TestRequest> requests;
    // Its only token is sampled by the last chunk of the prompt, so nothing is drafted.
    requests.push_back(make_request(1, 70, 1));
    for (int i = 0; i < 3; ++i) {
      requests.push_back(make_request(1, 70 + i, 20));
      requests.back().submitted_at = 8 + i;
    }
    const DraftedRun drafted = expect_same(config, requests);
    expect_all_accepted(drafted);
    EXPECT_GT(drafted.stats.num_cached_tokens, 3 * 60);
  }
}

// Above the batch size nothing is drafted, and the draft model falls behind.
TEST_P(ModelDrafter, ContinuesAfterStepsWithoutDrafts) {
  EngineConfig config = self_drafting("llama-gqa4-hd32");
  config.speculation.disable_by_batch_size = 2;
  config.chunked_prefill_size = 24;
  std::vector<TestRequest> requests = {make_request(0, 30, 90)};
  for (int i = 0; i < 3; ++i) {
    requests.push_back(make_request(i + 1, 20, 30));
    requests.back().submitted_at = 4;
  }
  const DraftedRun drafted = expect_same(config, requests);
  expect_all_accepted(drafted);
  EXPECT_GT(drafted.answers.at({1, 0}).counts.num_drafted, 20);
}

TEST_P(ModelDrafter, AcceptsEveryDraftAfterPreemptions) {
  for (const int page_size : {1, 8}) {
    EngineConfig config = self_drafting("llama-gqa4-hd32");
    config.backend_options.page_size = page_size;
    config.max_total_tokens = 144;
    config.schedule.conservativeness = 0.0;
    std::vector<TestRequest> requests;
    for (int i = 0; i < 6; ++i) requests.push_back(make_request(i, 10 + i, 40 + i));
    const DraftedRun drafted = expect_same(config, requests);
    expect_all_accepted(drafted);
    EXPECT_GT(drafted.num_preemptions, 0) << "the test checks too little";
  }
}

TEST_P(ModelDrafter, DraftsNothingAfterThePositionsOfTheDraftModel) {
  EngineConfig config = make_config("llama-gqa4-hd32", GetParam());
  config.speculation = standalone(golden("llama-rope-dynamic"));  // 128 positions
  const DraftedRun drafted = expect_same(config, {make_request(1, 100, 60), make_request(2, 130, 20)});
  EXPECT_GT(drafted.answers.at({1, 0}).counts.num_drafted, 0);
  EXPECT_EQ(drafted.answers.at({2, 0}).counts.num_drafted, 0);
}

struct HeadCase {
  const char* target;
  const char* draft;  // empty: in the target's files
  SpeculativeAlgorithm algorithm;
};
constexpr HeadCase kHeads[] = {
    {"draft-target", "draft-eagle3", SpeculativeAlgorithm::kEagle3},
    {"draft-target", "draft-eagle3-norms", SpeculativeAlgorithm::kEagle3},
    {"draft-target", "draft-eagle3-final", SpeculativeAlgorithm::kEagle3},
    {"draft-target", "draft-eagle", SpeculativeAlgorithm::kEagle},
    {"draft-mimo", "", SpeculativeAlgorithm::kNextn},
    {"draft-deepseek-v3", "", SpeculativeAlgorithm::kNextn},
    {"draft-qwen3-next", "", SpeculativeAlgorithm::kEagle},
    {"draft-ernie4-5", "", SpeculativeAlgorithm::kNextn},
};

EngineConfig head_drafting(const HeadCase& head, int num_steps = 3, DeviceType device = DeviceType::kCpu) {
  EngineConfig config = make_config(head.target, device);
  config.speculation =
      standalone(*head.draft == '\0' ? std::filesystem::path() : golden(head.draft), num_steps);
  config.speculation.algorithm = head.algorithm;
  return config;
}

TEST_P(ModelDrafter, HeadsDraftFromTheHiddenStatesOfTheTarget) {
  for (const HeadCase& head : kHeads) {
    SCOPED_TRACE(testing::Message() << head.target << " " << head.draft);
    EngineConfig config = head_drafting(head, 4, GetParam());
    config.chunked_prefill_size = 24;
    config.backend_options.page_size = 4;
    std::vector<TestRequest> requests = make_requests(4, 30);
    requests[1].request.params.temperature = 0.5f;
    const DraftedRun drafted = expect_same(config, requests);
    EXPECT_GT(drafted.stats.drafts.num_drafted, 4 * 4 * 20);
    expect_same_drafts(run(one_by_one(config), requests), drafted);
  }
}

// Returns the most likely tokens after each row of a head's golden logits.
std::vector<int32_t> golden_drafts(const HeadCase& head, const SafetensorsFile& file) {
  const Tensor logits = file.tensor("logits");
  const int64_t num_rows = logits.view().shape[0];
  std::vector<int32_t> ids(static_cast<size_t>(num_rows));
  Stream stream;
  kernels::argmax(logits, ids, stream);
  const auto files = open_checkpoint(golden(*head.draft == '\0' ? head.target : head.draft))->open_tensors();
  if (!files->contains("d2t")) return ids;
  const Tensor offsets = files->tensor("d2t");
  for (int32_t& id : ids) id += static_cast<int32_t>(offsets.span<int64_t>()[static_cast<size_t>(id)]);
  return ids;
}

// The first draft after tokens [0, i + 1] is that of the reference's row i, which has the hidden state of
// token i and token i + 1.
TEST_P(ModelDrafter, HeadsPredictTheTokensOfTheReference) {
  for (const HeadCase& head : kHeads) {
    SCOPED_TRACE(testing::Message() << head.target << " " << head.draft);
    const SafetensorsFile file(golden(*head.draft == '\0' ? head.target : head.draft) / "golden.safetensors");
    const std::vector<int32_t> expected = golden_drafts(head, file);
    const Tensor stored = file.tensor("tokens");
    const std::span<const int32_t> tokens = stored.span<const int32_t>();
    std::vector<TestRequest> requests;
    for (size_t i = 0; i < expected.size(); ++i) {
      requests.push_back(make_request(1, 1, 4));
      requests.back().request.prompt =
          std::vector<int32_t>(tokens.begin(), tokens.begin() + static_cast<int64_t>(i) + 1);
      requests.back().request.params.logit_bias = {{tokens[i + 1], 100.0f}};
    }
    EngineConfig config = head_drafting(head, 2, GetParam());
    config.speculation.disable_by_batch_size = 32;
    const DraftedRun drafted = run(config, requests);
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto& drafts = drafted.drafts.at({static_cast<RequestId>(i) + 1, 0});
      ASSERT_TRUE(drafts.contains(static_cast<int>(i) + 2)) << i;
      EXPECT_EQ(drafts.at(static_cast<int>(i) + 2).front(), expected[i]) << i;
    }
  }
}

// The trained heads of the bundled model: wrong positions or hidden states would lower their acceptance.
TEST_P(ModelDrafter, TrainedHeadsPredictMostTokensOfTheBundledModel) {
  using enum SpeculativeAlgorithm;
  for (const auto& [name, algorithm] :
       {std::pair{"attend-tiny-eagle3", kEagle3}, {"attend-tiny-mtp", kNextn}}) {
    SCOPED_TRACE(name);
    const std::filesystem::path models = ATTEND_SOURCE_DIR "/models";
    EngineConfig config = make_config("", GetParam());
    config.model_path = models / "attend-tiny";
    config.context_length = 256;
    config.speculation = standalone(models / name, 4);
    config.speculation.algorithm = algorithm;
    std::vector<TestRequest> requests;
    for (const char* words :
         {"laugh [ scout coffee writer pea roll milk ]", "apple [ river stone cloud tree ]",
          "green [ house music table winter friend ]"}) {
      requests.push_back(make_request(1, 1, 24));
      requests.back().request.prompt = std::string("copy: ") + words + " x ->";
      requests.back().request.params.ignore_eos = false;
    }
    EXPECT_GT(expect_same(config, requests).stats.drafts.accept_length(), 1.8);
  }
}

// Cached pages have K/V of the head, also those of an answer, except the last ones.
TEST_P(ModelDrafter, HeadsContinueAfterCachedPrefixes) {
  for (const int page_size : {1, 4, 16}) {
    SCOPED_TRACE(page_size);
    EngineConfig config = head_drafting(kHeads[0], 3, GetParam());
    config.backend_options.page_size = page_size;
    std::vector<TestRequest> requests = {make_request(1, 40, 60)};
    const std::vector<int32_t> answer = run(config, requests).answers.at({1, 0}).tokens;
    for (const int num_shared : {80, 60, 41, 40, 20}) {
      std::vector<int32_t> prompt = prompt_tokens(1, 40);
      prompt.insert(prompt.end(), answer.begin(), answer.end());
      prompt.resize(static_cast<size_t>(num_shared));
      for (const int32_t id : {5, 9, 7}) prompt.push_back(id + num_shared % 50);
      requests.push_back(make_request(1, 1, 20));
      requests.back().request.prompt = prompt;
      requests.back().submitted_at = 70;
    }
    const DraftedRun drafted = expect_same(config, requests);
    EXPECT_GT(drafted.stats.num_cached_tokens, 150);
    for (RequestId id = 2; id <= 6; ++id) EXPECT_GT(drafted.answers.at({id, 0}).counts.num_drafted, 30) << id;
    expect_same_drafts(run(one_by_one(config), requests), drafted);
  }
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int below(int bound) { return static_cast<int>(engine_() % static_cast<unsigned>(bound)); }
  int between(int lowest, int highest) { return lowest + below(highest - lowest + 1); }
  bool one_in(int number) { return below(number) == 0; }
  template <class T>
  T of(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<int>(values.size()))];
  }

 private:
  std::mt19937 engine_;
};

std::vector<TestRequest> random_requests(Random& random) {
  std::vector<TestRequest> requests;
  int at = 0;
  for (int i = random.between(2, 10); i > 0; --i) {
    // Some prompts share a prefix.
    TestRequest& made =
        requests.emplace_back(make_request(random.below(3), random.between(1, 70), random.between(1, 40)));
    SamplingParams& params = made.request.params;
    params.temperature = random.of({0.0f, 0.0f, 0.4f});
    params.seed = static_cast<uint64_t>(random.below(1 << 20));
    if (random.one_in(3)) params.stop_token_ids = {random.between(2, 127), random.between(2, 127)};
    if (random.one_in(5)) params.frequency_penalty = 0.05f;
    if (random.one_in(5)) params.n = 2;
    made.has_mask = random.one_in(8);
    if (random.one_in(5)) made.aborted_after = random.below(15);
    made.submitted_at = at;
    if (random.one_in(3)) at += random.below(12);
  }
  return requests;
}

TEST(ModelDrafterProperty, RandomRunsProduceTheSameBitsAndAcceptDraftsOfTheTarget) {
  const char* const runs = std::getenv("ATTEND_DRAFT_RUNS");
  const int num_runs = runs == nullptr ? 60 : std::atoi(runs);
  const std::initializer_list<std::string> targets = {
      "llama-gqa4-hd32",         "deepseek-v2-lite",   "gemma3-layer-ropes", "gpt-oss-sinks-window",
      "qwen3-some-layers-slide", "qwen3-next-grouped", "llama4-chunks",      "lfm2-conv"};
  int64_t num_preemptions = 0, num_cached = 0, num_equal = 0, num_other = 0;
  for (int seed = 1; seed <= num_runs; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(static_cast<unsigned>(seed));
    const std::string target = random.of(targets);
    EngineConfig config = make_config(target);
    const bool has_states = target == "qwen3-next-grouped" || target == "lfm2-conv";
    const std::filesystem::path draft =
        !has_states && random.one_in(2)
            ? golden(target)
            : random.of({golden("llama-mha-hd64-tied"), golden("gemma2-caps-window"), similar_llama(),
                         golden("deepseek-v3")});
    config.speculation = standalone(draft, random.between(1, 7));
    config.speculation.disable_by_batch_size = random.of({1, 4, 16, 16});
    config.backend_options.page_size = 1 << random.below(6);
    config.chunked_prefill_size = random.of({8, 16, 24, 64, 512});
    config.max_running_requests = random.of({1, 3, 8});
    config.max_total_tokens = random.of({0, 128, 160});
    config.disable_radix_cache = random.one_in(5);
    config.overlap_schedule = random.one_in(2);
    config.schedule.conservativeness = random.of({0.0, 1.0});
    const std::vector<TestRequest> requests = random_requests(random);
    if (random.one_in(2)) {
      const HeadCase& head = kHeads[static_cast<size_t>(random.below(static_cast<int>(std::size(kHeads))))];
      const SpeculativeOptions options = config.speculation;
      config.model_path = golden(head.target);
      config.speculation = head_drafting(head, options.num_steps).speculation;
      config.speculation.disable_by_batch_size = options.disable_by_batch_size;
      config.overlap_schedule.reset();
    }
    const bool is_equal = config.model_path == config.speculation.draft_model_path;
    const DraftedRun drafted = expect_same(config, requests);
    if (drafted.stats.drafts.num_drafted > 100)
      expect_same_drafts(run(one_by_one(config), requests, false), drafted);
    num_preemptions += drafted.num_preemptions;
    num_cached += drafted.stats.num_cached_tokens;
    (is_equal ? num_equal : num_other) += drafted.stats.drafts.num_drafted;
    RequestId id = 1;
    for (const TestRequest& request : requests) {
      for (int i = 0; i < request.request.params.n && is_equal && request.is_greedy(); ++i) {
        const DraftCounts& counts = drafted.answers.at({id, i}).counts;
        EXPECT_EQ(counts.num_accepted, counts.num_drafted) << "request " << id;
      }
      id += request.request.params.n;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(num_preemptions, num_runs / 40) << "the test checks too little";
  EXPECT_GT(num_cached, 10 * num_runs) << "the test checks too little";
  EXPECT_GT(std::min(num_equal, num_other), 10 * num_runs) << "the test checks too little";
}

TEST(ModelDrafterOptions, ChooseTheNumberOfStepsAsSglang) {
  const auto resolved = [](const std::string& target, SpeculativeOptions options) {
    EngineConfig config = make_config(target);
    options.algorithm = SpeculativeAlgorithm::kStandalone;
    options.draft_model_path = golden("llama-gqa4-hd32");
    config.speculation = options;
    const SpeculativeOptions chosen = Engine(config).info().speculation;
    EXPECT_EQ(chosen.num_draft_tokens, chosen.num_steps + 1);
    EXPECT_EQ(chosen.eagle_topk, 1);
    return chosen.num_steps;
  };
  EXPECT_EQ(resolved("llama-bf16", {}), 5);
  EXPECT_EQ(resolved("qwen3-gqa2-hd128", {}), 3);
  EXPECT_EQ(resolved("qwen3-gqa2-hd128", {.num_steps = 7}), 7);
  EXPECT_EQ(resolved("qwen3-gqa2-hd128", {.num_draft_tokens = 3}), 2);
}

TEST(ModelDrafterOptions, CountTheMemoryOfBothModels) {
  EngineConfig config = make_config("llama-gqa4-hd32");
  const EngineInfo plain = Engine(config).info();
  config.speculation = standalone(golden("llama-gqa4-hd32"));
  const EngineInfo drafted = Engine(config).info();
  ASSERT_EQ(drafted.executors.size(), 2u);
  EXPECT_EQ(drafted.weight_bytes(), 2 * plain.weight_bytes());
  EXPECT_EQ(drafted.executors[0].kv_token_bytes, drafted.executors[1].kv_token_bytes);
  EXPECT_GT(drafted.executors[1].pool_bytes, 0u);
}

TEST(ModelDrafterOptions, RejectDraftModelsThatCannotServeTheTarget) {
  const auto error = [](ErrorCode code, const SpeculativeOptions& options,
                        const std::string& target = "llama-gqa4-hd32") {
    EngineConfig config = make_config(target);
    config.speculation = options;
    bool weights_read = false;
    const std::string message = error_message(code, [&] {
      EngineProgress progress;
      progress.resolved = [&](const Engine&) { weights_read = true; };
      Engine engine(config, progress);
    });
    EXPECT_FALSE(weights_read);
    return message;
  };
  EXPECT_THAT(error(ErrorCode::kInvalidArgument, standalone("")),
              HasSubstr("speculative_draft_model_path: required by speculative_algorithm STANDALONE"));
  EXPECT_THAT(error(ErrorCode::kNotFound, standalone("/nonexistent")), HasSubstr("/nonexistent"));
  EXPECT_THAT(error(ErrorCode::kInvalidArgument, standalone(ATTEND_SOURCE_DIR "/models/attend-tiny")),
              HasSubstr("expected the target's, 128"));
  EXPECT_THAT(error(ErrorCode::kUnsupported, standalone(golden("lfm2-conv"))), HasSubstr("recurrent layers"));
  EXPECT_THAT(error(ErrorCode::kUnsupported, standalone(golden("embed-bert-mean"))),
              HasSubstr("makes no text"));
  const auto head = [&](const char* name, SpeculativeAlgorithm algorithm) {
    SpeculativeOptions options = standalone(*name == '\0' ? std::filesystem::path() : golden(name));
    options.algorithm = algorithm;
    return options;
  };
  using enum SpeculativeAlgorithm;
  EXPECT_THAT(error(ErrorCode::kInvalidArgument, head("", kEagle3)),
              HasSubstr("speculative_draft_model_path: required by speculative_algorithm EAGLE3"));
  EXPECT_THAT(error(ErrorCode::kInvalidArgument, head("draft-eagle", kEagle3), "draft-target"),
              HasSubstr("expected speculative_algorithm EAGLE or NEXTN"));
  EXPECT_THAT(error(ErrorCode::kInvalidArgument, head("draft-eagle3", kEagle), "draft-target"),
              HasSubstr("expected speculative_algorithm EAGLE3"));
  EXPECT_THAT(error(ErrorCode::kInvalidArgument, head("draft-eagle3", kEagle3)), HasSubstr("hidden"));
  EXPECT_NE(error(ErrorCode::kUnsupported, head("", kNextn)), "");
  SpeculativeOptions options = standalone(golden("llama-gqa4-hd32"));
  options.draft_attention_backend = "flashmla";
  EXPECT_THAT(error(ErrorCode::kUnsupported, options), HasSubstr("flashmla"));
}

TEST(ModelDrafterOptions, RejectInvalidNumbers) {
  const auto error = [](ErrorCode code, SpeculativeOptions options) {
    return error_message(code, [&] { check(options); });
  };
  const auto kInvalid = ErrorCode::kInvalidArgument;
  SpeculativeOptions options = standalone("x", 64);
  EXPECT_THAT(error(kInvalid, options), HasSubstr("speculative_num_steps 64: 1 to 63"));
  options = standalone("x", 3);
  options.num_draft_tokens = 5;
  EXPECT_THAT(error(kInvalid, options), HasSubstr("speculative_num_draft_tokens 5: expected 4"));
  options = standalone("x", 3);
  options.eagle_topk = 4;
  EXPECT_THAT(error(ErrorCode::kUnsupported, options), HasSubstr("speculative_eagle_topk 4: expected 1"));
  EXPECT_THAT(error(kInvalid, {.algorithm = SpeculativeAlgorithm::kNgram, .num_steps = 3}),
              HasSubstr("speculative_num_steps: requires a speculative_algorithm with a draft model"));
  EXPECT_THAT(error(kInvalid, {.draft_model_path = "x"}),
              HasSubstr("speculative_draft_model_path: requires"));
}

}  // namespace
}  // namespace attend::model_drafter_test
