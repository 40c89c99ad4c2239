// Requests with random parameters give the same answers without others and under load: 200 at a time, in an
// engine with random options, while others are aborted. Float32, so that no rounding of weights' formats is
// involved.
//   ATTEND_LOAD_CONFIGS: number of random engines per mode
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>

#include "attend/engine/engine.h"

namespace attend::load_property_test {
namespace {

constexpr int kNumRequests = 200;

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int below(int limit) { return static_cast<int>(engine_() % static_cast<unsigned>(limit)); }
  int between(int lowest, int highest) { return lowest + below(highest - lowest + 1); }
  bool one_in(int number) { return below(number) == 0; }
  float upto(float highest) { return highest * static_cast<float>(below(1001)) / 1000.0f; }
  template <class T>
  T of(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<int>(values.size()))];
  }

 private:
  std::mt19937 engine_;
};

// Excludes a third of the tokens, others at each position.
class ScatteredMask : public TokenMask {
 public:
  explicit ScatteredMask(uint32_t seed) : seed_(seed) {}
  bool fill(std::span<uint32_t> words) override {
    for (size_t i = 0; i < words.size(); ++i) {
      const uint32_t mixed = (seed_ + position_ * 2654435761u + static_cast<uint32_t>(i)) * 2246822519u;
      words[i] = mixed | mixed >> 13 | 1u;
    }
    return true;
  }
  void accept(int32_t) override { ++position_; }
  std::shared_ptr<TokenMask> fork() const override { return std::make_shared<ScatteredMask>(seed_); }

 private:
  uint32_t seed_, position_ = 0;
};

struct RandomRequest {
  GenerationRequest request;
  std::optional<uint32_t> mask_seed;
  int aborted_after = -1;  // steps after its submission; -1: not aborted

  GenerationRequest make() const {
    GenerationRequest made = request;
    if (mask_seed) made.mask = std::make_shared<ScatteredMask>(*mask_seed);
    return made;
  }
};

std::vector<int32_t> random_tokens(Random& random, int count) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(random.between(5, 1000));
  return tokens;
}

RandomRequest random_request(Random& random, const std::vector<std::vector<int32_t>>& prefixes) {
  RandomRequest made;
  std::vector<int32_t> prompt =
      prefixes[static_cast<size_t>(random.below(static_cast<int>(prefixes.size())))];
  const std::vector<int32_t> own = random_tokens(random, random.between(1, 40));
  prompt.insert(prompt.end(), own.begin(), own.end());
  if (random.one_in(4)) {  // a repetition, which the drafter finds
    const std::vector<int32_t> start(prompt.begin(), prompt.begin() + std::ssize(prompt) / 2);
    prompt.insert(prompt.end(), start.begin(), start.end());
  }
  made.request.prompt = std::move(prompt);
  SamplingParams& params = made.request.params;
  params.max_new_tokens = random.one_in(10) ? 0 : random.between(1, 24);
  params.temperature = random.of({0.0f, 0.0f, 0.7f, 1.5f});
  params.seed = static_cast<uint64_t>(random.below(1 << 30));
  if (random.one_in(3)) params.top_k = random.between(1, 50);
  if (random.one_in(3)) params.top_p = 0.1f + random.upto(0.9f);
  if (random.one_in(4)) params.min_p = random.upto(0.3f);
  if (random.one_in(4)) params.repetition_penalty = 0.8f + random.upto(0.7f);
  if (random.one_in(4)) params.frequency_penalty = random.upto(1.0f);
  if (random.one_in(4)) params.presence_penalty = random.upto(1.0f) - 0.5f;
  if (random.one_in(4))
    params.logit_bias = {{random.between(5, 500), 5.0f}, {random.between(501, 1000), -9.0f}};
  if (random.one_in(4)) params.min_tokens = random.between(0, params.max_new_tokens);
  if (random.one_in(4)) params.stop_token_ids = random_tokens(random, 20);
  if (random.one_in(4)) params.stop = {random.of<std::string>({" a", "e", "the", " ", "x y"}), "zz"};
  params.include_stop = random.one_in(2);
  params.ignore_eos = random.one_in(2);
  params.skip_special_tokens = random.one_in(2);
  params.echo = random.one_in(6);
  if (random.one_in(6)) params.n = random.between(2, 3);
  if (random.one_in(3)) params.logprobs = random.between(0, 3);
  if (random.one_in(5)) params.prompt_logprobs = random.between(0, 3);
  if (random.one_in(5)) made.mask_seed = static_cast<uint32_t>(random.below(1 << 20));
  made.request.cache_salt = random.of<std::string>({"", "", "", "a"});
  made.request.priority = random.between(-2, 2);
  if (random.one_in(8)) made.aborted_after = random.below(20);
  return made;
}

EngineConfig model(bool deterministic) {
  EngineConfig config;
  config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
  config.dtype = DType::kF32;
  config.kv_cache_dtype = DType::kF32;
  config.context_length = 384;
  config.max_running_requests = 1;
  config.deterministic_inference = deterministic;
  return config;
}

EngineConfig random_config(Random& random, bool deterministic) {
  EngineConfig config = model(deterministic);
  config.backend_options.page_size = random.of({1, 4, 16, 64});
  config.chunked_prefill_size = random.of({64, 128, 512});
  config.max_running_requests = random.of({4, 16, 48});
  config.max_total_tokens = random.of({1024, 2048, 8192});
  config.disable_radix_cache = random.one_in(4);
  config.radix_eviction_policy = random.of({EvictionPolicy::kLru, EvictionPolicy::kLfu});
  config.disable_cascade_attention = random.one_in(3);
  config.cascade_min_bytes = 0;
  config.overlap_schedule = random.one_in(2);
  if (random.one_in(2))
    config.speculation = {.algorithm = SpeculativeAlgorithm::kNgram,
                          .num_draft_tokens = random.between(2, 12),
                          .disable_by_batch_size = 64};
  config.schedule.policy = random.of(
      {SchedulePolicy::kFcfs, SchedulePolicy::kLpm, SchedulePolicy::kLof, SchedulePolicy::kPriority});
  config.schedule.conservativeness = random.of({0.0, 0.3, 1.0});
  return config;
}

struct Answer {
  std::vector<int32_t> tokens;
  std::string text, stop;
  FinishReason reason = FinishReason::kNone;
  std::vector<float> logprobs;
  std::vector<int32_t> tops;

  bool operator==(const Answer&) const = default;
};

// Answers of the completions of each request.
using Answers = std::map<RequestId, std::map<int, Answer>>;

void append(const LogprobsView& logprobs, Answer& answer) {
  answer.logprobs.insert(answer.logprobs.end(), logprobs.logprobs.begin(), logprobs.logprobs.end());
  for (const TokenLogprob& top : logprobs.tops) answer.tops.push_back(top.token_id);
}

OutputSink add_to(Answers& answers) {
  return [&answers](const RequestOutput& output) {
    Answer& answer = answers[output.id][output.index];
    append(output.prompt_logprobs, answer);
    append(output.logprobs, answer);
    answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
    answer.text += output.text;
    answer.stop = output.matched_stop;
    answer.reason = output.finish_reason;
  };
}

// Without bits of the logprobs, which depend on the batch unless inference is deterministic.
Answer without_logprobs(Answer answer) {
  answer.logprobs.clear();
  answer.tops.clear();
  return answer;
}

bool begins_with(const Answer& whole, const Answer& part) {
  return part.tokens.size() <= whole.tokens.size() &&
         std::equal(part.tokens.begin(), part.tokens.end(), whole.tokens.begin());
}

class Load : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Inference, Load, testing::Bool(),
                         [](const auto& mode) { return mode.param ? "Deterministic" : "Default"; });

TEST_P(Load, DoesNotChangeAnswers) {
  const bool deterministic = GetParam();
  Random random(deterministic ? 1 : 2);
  std::vector<std::vector<int32_t>> prefixes = {{}, random_tokens(random, 17), random_tokens(random, 70)};
  prefixes.push_back(prefixes[2]);
  prefixes.back().resize(50);
  std::vector<RandomRequest> requests;
  for (int i = 0; i < kNumRequests; ++i) requests.push_back(random_request(random, prefixes));

  EngineConfig alone = model(deterministic);
  alone.disable_radix_cache = true;
  Engine single(alone);
  std::vector<std::map<int, Answer>> expected;
  for (const RandomRequest& request : requests) {
    Answers answers;
    const OutputSink sink = add_to(answers);
    const RequestId id = single.submit(request.make());
    while (single.step(sink)) {
    }
    expected.push_back(answers.at(id));
  }

  const char* const given = std::getenv("ATTEND_LOAD_CONFIGS");
  for (int round = 0; round < (given != nullptr ? std::atoi(given) : 3); ++round) {
    SCOPED_TRACE(round);
    Engine loaded(random_config(random, deterministic));
    Answers answers;
    const OutputSink sink = add_to(answers);
    std::vector<std::pair<RequestId, int>> running;  // requests to abort, and the remaining steps
    std::vector<RequestId> ids;
    for (size_t next = 0; next < requests.size() || loaded.num_running() + loaded.num_waiting() > 0;) {
      for (int i = random.below(24); i > 0 && next < requests.size(); --i, ++next) {
        ids.push_back(loaded.submit(requests[next].make()));
        if (requests[next].aborted_after >= 0) running.emplace_back(ids.back(), requests[next].aborted_after);
      }
      loaded.step(sink);
      for (auto& [id, left] : running)
        if (left-- == 0) loaded.abort(id, sink);
      if (random.one_in(40)) loaded.flush_cache();
    }
    while (loaded.step(sink)) {
    }
    EXPECT_EQ(loaded.num_used_slots(), 0);
    int num_compared = 0, num_different = 0;
    for (size_t i = 0; i < requests.size(); ++i)
      for (const auto& [index, answer] : answers.at(ids[i])) {
        const Answer& wanted = expected[i].at(index);
        if (answer.reason == FinishReason::kAbort && requests[i].aborted_after >= 0) {
          num_different += !begins_with(wanted, answer);
        } else {
          ++num_compared;
          num_different +=
              deterministic ? answer != wanted : without_logprobs(answer) != without_logprobs(wanted);
        }
      }
    EXPECT_GT(num_compared, kNumRequests);
    // Sums of another order may choose another token if two are equally likely.
    EXPECT_LE(num_different, deterministic ? 0 : kNumRequests / 100);
  }
}

}  // namespace
}  // namespace attend::load_property_test
