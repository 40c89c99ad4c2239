#include "tests/engine/speculation/drafted_run.h"

#include "attend/tensor/cuda.h"
#include "tests/support/overflowing_model.h"

namespace attend::model_drafter_test {

std::filesystem::path golden(const std::string& name) { return ATTEND_SOURCE_DIR "/tests/goldens/" + name; }

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

namespace {

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

}  // namespace

GenerationRequest TestRequest::make() const {
  GenerationRequest made = request;
  if (has_mask) made.mask = std::make_shared<CountingMask>();
  return made;
}

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

std::vector<TestRequest> make_requests(int count, int max_new_tokens) {
  std::vector<TestRequest> requests;
  for (int i = 0; i < count; ++i) requests.push_back(make_request(i, 9 + 11 * i, max_new_tokens + 3 * i));
  return requests;
}

EngineConfig make_config(const std::string& model, DeviceType device) {
  EngineConfig config;
  config.model_path = golden(model);
  config.device.type = device;
  config.dtype = config.kv_cache_dtype = DType::kF32;
  config.deterministic_inference = true;
  if (device == DeviceType::kCuda) config.cuda_graph_max_bs = 8;
  return config;
}

SpeculativeOptions standalone(const std::filesystem::path& draft, int num_steps) {
  return {.algorithm = SpeculativeAlgorithm::kStandalone,
          .draft_model_path = draft,
          .num_steps = num_steps,
          .disable_by_batch_size = 16};
}

EngineConfig with_trees(EngineConfig config, int topk, int num_draft_tokens) {
  config.deterministic_inference = false;
  config.speculation.eagle_topk = topk;
  config.speculation.num_draft_tokens = num_draft_tokens;
  return config;
}

DraftedRun run(const EngineConfig& config, const std::vector<TestRequest>& requests, bool aborts) {
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

DraftedRun expect_same(const EngineConfig& config, const std::vector<TestRequest>& requests) {
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
    if (config.deterministic_inference) {
      EXPECT_EQ(answer.logprobs, whole.logprobs);
    }
  }
  return drafted;
}

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

EngineConfig head_drafting(const HeadCase& head, int num_steps, DeviceType device) {
  EngineConfig config = make_config(head.target, device);
  config.speculation =
      standalone(*head.draft == '\0' ? std::filesystem::path() : golden(head.draft), num_steps);
  config.speculation.algorithm = head.algorithm;
  return config;
}

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

void DeviceTest::SetUp() {
  if (GetParam() == DeviceType::kCuda && cuda::device_count() == 0)
    GTEST_SKIP() << "this machine has no GPU that this build can use";
}

}  // namespace attend::model_drafter_test
