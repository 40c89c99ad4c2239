// Request parameters, on a tiny random Llama (tests/goldens) and on models/attend-tiny.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "attend/base/error.h"
#include "attend/engine/engine.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

EngineConfig random_model(DeviceType device = DeviceType::kCpu) {
  EngineConfig config;
  config.device = {device, 0};
  config.model_path = ATTEND_SOURCE_DIR "/tests/goldens/llama-gqa4-hd32";
  config.kv_cache_dtype = DType::kF32;
  return config;
}
EngineConfig tiny_model() {
  EngineConfig config;
  config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
  return config;
}

struct Scored {
  float logprob;
  std::vector<TokenLogprob> top;
};
void append(std::vector<Scored>& to, const LogprobsView& from) {
  for (size_t i = 0; i < from.logprobs.size(); ++i)
    to.push_back({from.logprobs[i], {from.top(i).begin(), from.top(i).end()}});
}

struct Answer {
  std::vector<int32_t> tokens;
  std::string text, stop, message;
  FinishReason reason = FinishReason::kNone;
  ErrorCode error_code = ErrorCode::kInternal;
  std::optional<int32_t> matched_token;
  std::vector<Scored> logprobs, prompt_logprobs;
  int num_last = 0, num_preemptions = 0;
};
using Answers = std::map<std::pair<RequestId, int>, Answer>;

void add(Answers& answers, const RequestOutput& output) {
  Answer& answer = answers[{output.id, output.index}];
  answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
  answer.text += output.text;
  append(answer.logprobs, output.logprobs);
  append(answer.prompt_logprobs, output.prompt_logprobs);
  answer.reason = output.finish_reason;
  answer.stop = output.matched_stop;
  answer.message = output.message;
  answer.error_code = output.error_code;
  answer.matched_token = output.matched_token;
  answer.num_last += output.finished() ? 1 : 0;
  answer.num_preemptions = output.request.num_preemptions;
}

Answers outputs_of_all(Engine& engine) {
  Answers answers;
  while (engine.step([&](const RequestOutput& output) { add(answers, output); })) {
  }
  EXPECT_EQ(engine.num_used_slots(), 0);
  return answers;
}

Answer complete(const EngineConfig& config, GenerationRequest request) {
  Engine engine(config);
  engine.submit(std::move(request));
  return outputs_of_all(engine).begin()->second;
}

std::vector<int32_t> prompt_of_seed(int num_tokens, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> prompt(static_cast<size_t>(num_tokens));
  for (int32_t& id : prompt) id = static_cast<int32_t>(2 + random() % 126);
  return prompt;
}
const std::vector<int32_t> kPrompt = prompt_of_seed(23, 1);

// Features that read or change logits are tested on both devices.
class RequestOn : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceType::kCuda && cuda::device_count() == 0)
      GTEST_SKIP() << "this machine has no GPU that this build can use";
  }
  EngineConfig model() const { return random_model(GetParam()); }
  // Tolerance of a logprob computed in another step: a GPU sums in another order in tensor cores.
  float tolerance() const { return GetParam() == DeviceType::kCpu ? 1e-4f : 2e-2f; }
};
INSTANTIATE_TEST_SUITE_P(Device, RequestOn, testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         [](const auto& device) { return device.param == DeviceType::kCpu ? "Cpu" : "Gpu"; });

void expect_near(const std::vector<Scored>& a, const std::vector<Scored>& b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i].logprob, b[i].logprob, tolerance) << i;
    ASSERT_EQ(a[i].top.size(), b[i].top.size());
    for (size_t j = 0; j < a[i].top.size(); ++j)
      EXPECT_NEAR(a[i].top[j].logprob, b[i].top[j].logprob, tolerance) << i << " " << j;
  }
}

TEST_P(RequestOn, PromptLogprobsMatchGeneratedLogprobs) {
  const SamplingParams params{
      .max_new_tokens = 9, .temperature = 1.0f, .seed = 5, .ignore_eos = true, .logprobs = 3};
  const Answer generated = complete(model(), {.prompt = kPrompt, .params = params});
  ASSERT_EQ(generated.logprobs.size(), 9u);
  std::vector<int32_t> all = kPrompt;
  all.insert(all.end(), generated.tokens.begin(), generated.tokens.end());
  const SamplingParams scoring{.max_new_tokens = 1, .ignore_eos = true, .prompt_logprobs = 3};
  const Answer whole = complete(model(), {.prompt = all, .params = scoring});
  ASSERT_EQ(whole.prompt_logprobs.size(), all.size() - 1);
  EXPECT_TRUE(whole.logprobs.empty());
  expect_near({whole.prompt_logprobs.end() - 9, whole.prompt_logprobs.end()}, generated.logprobs,
              tolerance());

  // In chunks, in a batch, with few rows of logits per step.
  EngineConfig chunks = model();
  chunks.chunked_prefill_size = 7;
  chunks.max_running_requests = 2;
  Engine engine(chunks);
  engine.submit(prompt_of_seed(40, 2), {.max_new_tokens = 20, .ignore_eos = true});
  const RequestId id = engine.submit(all, scoring);
  expect_near(outputs_of_all(engine).at({id, 0}).prompt_logprobs, whole.prompt_logprobs, tolerance());
}

TEST_P(RequestOn, LogprobsSumToOne) {
  const SamplingParams params{.max_new_tokens = 6, .ignore_eos = true, .logprobs = 20};
  const Answer answer = complete(model(), {.prompt = kPrompt, .params = params});
  for (size_t i = 0; i < answer.logprobs.size(); ++i) {
    const Scored& scored = answer.logprobs[i];
    ASSERT_EQ(scored.top.size(), 20u);
    EXPECT_EQ(scored.top[0].token_id, answer.tokens[i]) << "greedy";
    EXPECT_EQ(scored.top[0].logprob, scored.logprob);
    double sum = 0.0;
    for (size_t j = 0; j < 20; ++j) {
      sum += std::exp(static_cast<double>(scored.top[j].logprob));
      EXPECT_LE(scored.top[j].logprob, scored.top[j == 0 ? 0 : j - 1].logprob);
    }
    EXPECT_LE(sum, 1.0 + 1e-5);
    EXPECT_GE(sum, 20.0 / 128 - 1e-5) << "the 20 most likely of 128";
  }
}

TEST(RequestLimits, RequestWithoutNewTokensComputesItsPrompt) {
  Engine engine(random_model());
  SamplingParams params{.max_new_tokens = 0, .ignore_eos = true, .n = 2, .logprobs = 1, .prompt_logprobs = 1};
  const RequestId none = engine.submit(kPrompt, params);
  params.max_new_tokens = 1;
  const RequestId one = engine.submit(kPrompt, params);
  const Answers answers = outputs_of_all(engine);
  for (int i = 0; i < 2; ++i) {
    const Answer& answer = answers.at({none, i});
    EXPECT_EQ(answer.tokens.size(), 0u);
    EXPECT_EQ(answer.logprobs.size(), 0u);
    EXPECT_EQ(answer.reason, FinishReason::kLength);
    EXPECT_EQ(answer.num_last, 1);
    expect_near(answer.prompt_logprobs, answers.at({one, i}).prompt_logprobs, 1e-4f);
  }
}

TEST(RequestLogprobs, OfAPromptAreComputedDespiteACachedPrefix) {
  EngineConfig config = random_model();
  config.backend_options.page_size = 4;
  Engine engine(config);
  const SamplingParams params{.max_new_tokens = 2, .ignore_eos = true, .prompt_logprobs = 1};
  const RequestId cold = engine.submit(kPrompt, params);
  const std::vector<Scored> expected = outputs_of_all(engine).at({cold, 0}).prompt_logprobs;
  const RequestId warm = engine.submit(kPrompt, params);
  expect_near(outputs_of_all(engine).at({warm, 0}).prompt_logprobs, expected, 1e-4f);
}

TEST(RequestLogprobs, OfAPromptAreReturnedOnceAfterPreemption) {
  EngineConfig config = random_model();
  config.backend_options.page_size = 4;
  config.max_total_tokens = 100;
  config.schedule.conservativeness = 0.0;  // reserves nothing for the answers of running requests
  Engine engine(config);
  const SamplingParams params{.max_new_tokens = 40, .ignore_eos = true, .prompt_logprobs = 0};
  for (unsigned i = 0; i < 3; ++i) engine.submit(prompt_of_seed(20, i), params);
  int num_preemptions = 0;
  for (const auto& [key, answer] : outputs_of_all(engine)) {
    EXPECT_EQ(answer.prompt_logprobs.size(), 19u);
    num_preemptions += answer.num_preemptions;
  }
  EXPECT_GT(num_preemptions, 0) << "no request was preempted: the test checks nothing";
}

// The chosen token has the highest value of the formulas among the 20 most likely, computed here from
// logprobs.
TEST_P(RequestOn, AppliesPenaltiesByTheirFormulas) {
  const SamplingParams params{.max_new_tokens = 40,
                              .frequency_penalty = 0.4f,
                              .presence_penalty = 0.7f,
                              .ignore_eos = true,
                              .logprobs = 20};
  const Answer answer = complete(model(), {.prompt = kPrompt, .params = params});
  std::map<int32_t, int> counts;
  int num_changed = 0;
  for (size_t i = 0; i < answer.tokens.size(); ++i) {
    const auto value = [&](const TokenLogprob& token) {
      const int count = counts[token.token_id];
      return token.logprob - 0.4f * static_cast<float>(count) - (count > 0 ? 0.7f : 0.0f);
    };
    const auto chosen = value({answer.tokens[i], answer.logprobs[i].logprob});
    for (const TokenLogprob& token : answer.logprobs[i].top) EXPECT_GE(chosen + 1e-4f, value(token)) << i;
    num_changed += answer.logprobs[i].top[0].token_id != answer.tokens[i] ? 1 : 0;
    ++counts[answer.tokens[i]];
  }
  EXPECT_GT(num_changed, 0) << "no penalty changed a choice: the test checks nothing";
}

TEST_P(RequestOn, ForbidsAndForcesTokensByBias) {
  const Answer plain =
      complete(model(), {.prompt = kPrompt, .params = {.max_new_tokens = 5, .ignore_eos = true}});
  const Answer forced = complete(
      model(),
      {.prompt = kPrompt,
       .params = {.max_new_tokens = 5, .logit_bias = {{77, 100.0f}}, .ignore_eos = true, .logprobs = 0}});
  EXPECT_THAT(forced.tokens, Each(77));
  for (const Scored& scored : forced.logprobs)
    EXPECT_LT(scored.logprob, -0.5f) << "logprobs are computed without the bias";
  const Answer without = complete(
      model(),
      {.prompt = kPrompt,
       .params = {.max_new_tokens = 5, .logit_bias = {{plain.tokens[0], -100.0f}}, .ignore_eos = true}});
  EXPECT_NE(without.tokens[0], plain.tokens[0]);
  EXPECT_THAT(without.tokens, testing::Not(testing::Contains(plain.tokens[0])));
}

TEST(RequestPenalties, OfOneRequestDoNotChangeAnother) {
  const SamplingParams plain{.max_new_tokens = 20, .ignore_eos = true};
  SamplingParams biased = plain;
  biased.logit_bias = {{77, 100.0f}};
  const Answer expected = complete(random_model(), {.prompt = kPrompt, .params = plain});
  Engine engine(random_model());
  engine.submit(kPrompt, biased);
  const RequestId id = engine.submit(kPrompt, plain);
  engine.submit(kPrompt, biased);
  EXPECT_EQ(outputs_of_all(engine).at({id, 0}).tokens, expected.tokens);
}

TEST(RequestStops, WaitForMinTokens) {
  const Answer free =
      complete(random_model(), {.prompt = kPrompt, .params = {.max_new_tokens = 12, .ignore_eos = true}});
  SamplingParams params{.max_new_tokens = 12, .stop_token_ids = {free.tokens[2]}, .ignore_eos = true};
  const Answer stopped = complete(random_model(), {.prompt = kPrompt, .params = params});
  EXPECT_LE(stopped.tokens.size(), 3u);
  EXPECT_EQ(stopped.matched_token, free.tokens[2]);
  params.min_tokens = 8;
  const Answer later = complete(random_model(), {.prompt = kPrompt, .params = params});
  EXPECT_GE(later.tokens.size(), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_NE(later.tokens[i], free.tokens[2]) << i;
}

const std::string kText = "copy: laugh [ scout coffee writer pea ] roll milk ->";

TEST(RequestStops, ReportTheMatchAndOptionallyIncludeIt) {
  SamplingParams params{.max_new_tokens = 16, .ignore_eos = true};
  const std::string whole = complete(tiny_model(), {.prompt = kText, .params = params}).text;
  ASSERT_GT(whole.size(), 8u);
  params.stop = {"never there", whole.substr(4, 3)};
  const Answer cut = complete(tiny_model(), {.prompt = kText, .params = params});
  EXPECT_EQ(cut.stop, params.stop[1]);
  EXPECT_FALSE(cut.matched_token);
  EXPECT_EQ(cut.text, whole.substr(0, whole.find(params.stop[1])));
  params.include_stop = true;
  const Answer kept = complete(tiny_model(), {.prompt = kText, .params = params});
  EXPECT_EQ(kept.text, cut.text + params.stop[1]);
}

TEST(RequestText, EchoStartsWithThePrompt) {
  SamplingParams params{.max_new_tokens = 6};
  const std::string answer = complete(tiny_model(), {.prompt = kText, .params = params}).text;
  params.echo = true;
  EXPECT_EQ(complete(tiny_model(), {.prompt = kText, .params = params}).text, kText + answer);
}

TEST(RequestCompletions, MatchSingleRequestsWithConsecutiveSeeds) {
  SamplingParams params{.max_new_tokens = 12, .temperature = 1.0f, .seed = 40, .ignore_eos = true, .n = 3};
  Engine engine(random_model());
  const RequestId before = engine.submit(kPrompt, {.max_new_tokens = 3, .ignore_eos = true});
  const RequestId id = engine.submit(kPrompt, params);
  const RequestId after = engine.submit(kPrompt, {.max_new_tokens = 3, .ignore_eos = true});
  EXPECT_EQ(id, before + 1);
  EXPECT_EQ(after, id + 3);
  const Answers answers = outputs_of_all(engine);
  EXPECT_EQ(answers.size(), 5u);
  params.n = 1;
  for (int i = 0; i < 3; ++i) {
    params.seed = 40 + static_cast<uint64_t>(i);
    EXPECT_EQ(answers.at({id, i}).tokens,
              complete(random_model(), {.prompt = kPrompt, .params = params}).tokens)
        << i;
  }
  EXPECT_NE(answers.at({id, 0}).tokens, answers.at({id, 1}).tokens);
}

TEST(RequestCompletions, AreAbortedTogether) {
  EngineConfig config = random_model();
  config.max_running_requests = 2;  // the third waits
  Engine engine(config);
  const RequestId id = engine.submit(kPrompt, {.max_new_tokens = 50, .ignore_eos = true, .n = 3});
  Answers answers;
  const OutputSink sink = [&](const RequestOutput& output) { add(answers, output); };
  for (int i = 0; i < 3; ++i) engine.step(sink);
  EXPECT_TRUE(engine.abort(id, sink));
  EXPECT_FALSE(engine.abort(id, sink));
  EXPECT_EQ(answers.size(), 3u);
  for (const auto& [key, answer] : answers) {
    EXPECT_EQ(answer.reason, FinishReason::kAbort);
    EXPECT_EQ(answer.num_last, 1);
  }
  EXPECT_FALSE(engine.step(sink));
  EXPECT_EQ(engine.num_used_slots(), 0);
}

TEST(RequestDeadline, EndsWaitingAndRunningRequests) {
  EngineConfig config = random_model();
  config.max_running_requests = 1;
  Engine engine(config);
  const auto soon = Clock::now() + std::chrono::milliseconds(20);
  const SamplingParams params{.max_new_tokens = 200, .ignore_eos = true};
  const RequestId running = engine.submit({.prompt = kPrompt, .params = params, .deadline = soon});
  const RequestId waiting = engine.submit({.prompt = kPrompt, .params = params, .deadline = soon});
  const RequestId patient = engine.submit({.prompt = kPrompt,
                                           .params = {.max_new_tokens = 2, .ignore_eos = true},
                                           .deadline = Clock::now() + std::chrono::hours(1)});
  Answers answers;
  const OutputSink sink = [&](const RequestOutput& output) { add(answers, output); };
  engine.step(sink);
  while (Clock::now() < soon) {
  }
  while (engine.step(sink)) {
  }
  for (const RequestId id : {running, waiting}) {
    EXPECT_EQ(answers.at({id, 0}).reason, FinishReason::kAbort);
    EXPECT_EQ(answers.at({id, 0}).message, "the deadline has passed");
  }
  EXPECT_EQ(answers.at({patient, 0}).tokens.size(), 2u);
}

// Allows one given token after another. kThrow throws, kNone allows no token.
class ListMask : public TokenMask {
 public:
  explicit ListMask(std::vector<int32_t> allowed) : allowed_(std::move(allowed)) {}
  bool fill(std::span<uint32_t> words) override {
    EXPECT_EQ(words.size(), 4u) << "128 tokens";
    if (next_ == allowed_.size()) return false;
    if (allowed_[next_] == kThrow) throw std::runtime_error("planted");
    std::fill(words.begin(), words.end(), 0u);
    if (allowed_[next_] != kNone)
      words[static_cast<size_t>(allowed_[next_] / 32)] = 1u << (allowed_[next_] % 32);
    return true;
  }
  void accept(int32_t token_id) override {
    if (next_ < allowed_.size()) {
      EXPECT_EQ(token_id, allowed_[next_]);
      ++next_;
    }
  }
  std::shared_ptr<TokenMask> fork() const override { return std::make_shared<ListMask>(allowed_); }

  static constexpr int32_t kThrow = -1, kNone = -2;

 private:
  std::vector<int32_t> allowed_;
  size_t next_ = 0;
};

TEST_P(RequestOn, SamplesAllowedTokensOnly) {
  const SamplingParams params{
      .max_new_tokens = 5, .temperature = 1.5f, .seed = 3, .ignore_eos = true, .n = 2, .logprobs = 2};
  Engine engine(model());
  const RequestId id = engine.submit({.prompt = kPrompt,
                                      .params = params,
                                      .mask = std::make_shared<ListMask>(std::vector<int32_t>{70, 3, 127})});
  const Answers answers = outputs_of_all(engine);
  for (int i = 0; i < 2; ++i) {
    const Answer& answer = answers.at({id, i});
    ASSERT_EQ(answer.tokens.size(), 5u);
    EXPECT_THAT(std::vector<int32_t>(answer.tokens.begin(), answer.tokens.begin() + 3),
                ElementsAre(70, 3, 127));
    EXPECT_NE(answer.logprobs[0].top[0].token_id, 70) << "logprobs are of the model's own logits";
    EXPECT_TRUE(std::isfinite(answer.logprobs[0].logprob));
  }
}

TEST(RequestMask, FailureEndsOnlyItsRequest) {
  const SamplingParams params{.max_new_tokens = 8, .ignore_eos = true};
  const Answer expected = complete(random_model(), {.prompt = kPrompt, .params = params});
  Engine engine(random_model());
  const auto masked = [&](const SamplingParams& with, std::vector<int32_t> tokens) {
    return engine.submit(
        {.prompt = kPrompt, .params = with, .mask = std::make_shared<ListMask>(std::move(tokens))});
  };
  const RequestId throwing = masked(params, {5, ListMask::kThrow}),
                  empty = masked(params, {5, ListMask::kNone});
  const RequestId good = engine.submit(kPrompt, params);
  const Answers answers = outputs_of_all(engine);
  EXPECT_EQ(answers.at({good, 0}).tokens, expected.tokens);
  EXPECT_EQ(answers.at({throwing, 0}).message, "planted");
  for (const RequestId id : {throwing, empty}) {
    EXPECT_EQ(answers.at({id, 0}).reason, FinishReason::kError);
    EXPECT_THAT(answers.at({id, 0}).tokens, ElementsAre(5));
  }
  EXPECT_EQ(answers.at({throwing, 0}).error_code, ErrorCode::kInternal);
  EXPECT_EQ(answers.at({empty, 0}).error_code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(answers.at({empty, 0}).message, HasSubstr("leave no token"));
}

TEST(RequestMask, MaskOfEndTokensOverridesMinTokens) {
  const SamplingParams params{
      .max_new_tokens = 8, .min_tokens = 6, .stop_token_ids = {9, 11}, .ignore_eos = true};
  Engine engine(random_model());
  const RequestId id = engine.submit({.prompt = kPrompt,
                                      .params = params,
                                      .mask = std::make_shared<ListMask>(std::vector<int32_t>{5, 7, 9})});
  const Answers answers = outputs_of_all(engine);
  EXPECT_EQ(answers.at({id, 0}).reason, FinishReason::kStop);
  EXPECT_THAT(answers.at({id, 0}).tokens, ElementsAre(5, 7, 9));
}

TEST(RequestErrors, NameTheParameter) {
  Engine engine(random_model());
  const auto expect_rejected = [&](const SamplingParams& params) -> std::string {
    try {
      engine.submit(kPrompt, params);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(expect_rejected({.repetition_penalty = 0.0f}),
            "repetition_penalty 0: above 0, at most 2 (1: none)");
  EXPECT_EQ(expect_rejected({.frequency_penalty = 2.5f}), "frequency_penalty 2.5: -2 to 2");
  EXPECT_EQ(expect_rejected({.presence_penalty = std::nanf("")}), "presence_penalty nan: -2 to 2");
  EXPECT_EQ(expect_rejected({.logit_bias = {{5, 101.0f}}}), "logit_bias of token 5: 101: -100 to 100");
  EXPECT_EQ(expect_rejected({.logit_bias = {{5, 1.0f}, {5, 2.0f}}}), "logit_bias: token 5 occurs twice");
  EXPECT_EQ(expect_rejected({.logit_bias = {{128, 1.0f}}}), "logit_bias: token id 128: 0 to 127");
  EXPECT_EQ(expect_rejected({.max_new_tokens = 4, .min_tokens = 5}), "min_tokens 5: 0 to max_new_tokens, 4");
  EXPECT_EQ(expect_rejected({.n = 0}), "n 0: 1 to 128");
  EXPECT_EQ(expect_rejected({.logprobs = 21}), "logprobs 21: 0 to 20");
  EXPECT_EQ(expect_rejected({.prompt_logprobs = -1}), "prompt_logprobs -1: 0 to 20");
  EXPECT_THAT(expect_rejected({.echo = true}), HasSubstr("tokenizer.json"));
}

}  // namespace
}  // namespace attend
