// The overlap schedule queues a step before the tokens of the previous step are known. Requests get the same
// tokens as without it, bit for bit in deterministic mode, however they end, and release all memory.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <stdexcept>
#include <thread>

#include "attend/backends/table.h"
#include "attend/base/error.h"
#include "attend/engine/async_engine.h"
#include "attend/tensor/cuda.h"
#include "tests/support/overflowing_model.h"

namespace attend {
namespace {

const std::filesystem::path kLlama = ATTEND_SOURCE_DIR "/tests/goldens/llama-gqa4-hd32";

struct OverlapAnswer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::string text;
  FinishReason reason = FinishReason::kNone;
  int num_outputs_after_end = 0;
  bool operator==(const OverlapAnswer&) const = default;
};

struct OverlapRun {
  std::map<RequestId, OverlapAnswer> answers;
  EngineStats stats;
  int64_t num_preemptions = 0;
};

// A prompt that shares no first token with another prompt of a test.
std::vector<int32_t> prompt_of(int first, int num_tokens) {
  std::vector<int32_t> prompt(static_cast<size_t>(num_tokens));
  for (int i = 0; i < num_tokens; ++i)
    prompt[static_cast<size_t>(i)] = 2 + (31 * first + 7 * i + i * i) % 126;
  return prompt;
}

class OverlapSchedule : public testing::TestWithParam<DeviceType> {
 protected:
  OverlapSchedule() {
    config_.model_path = kLlama;
    config_.device.type = GetParam();
    config_.dtype = DType::kF32;  // in 16 bits, rounding in another batch can change a token
    if (GetParam() == DeviceType::kCuda) config_.cuda_graph_max_bs = 8;
  }
  void SetUp() override {
    if (GetParam() == DeviceType::kCuda && cuda::device_count() == 0)
      GTEST_SKIP() << "this machine has no GPU that this build can use";
  }

  using Event = std::function<void(Engine&, int step, const OutputSink&)>;

  // Submits all requests at once. Calls `between` after each step and `listener` for each output.
  OverlapRun run(bool overlap, const std::vector<GenerationRequest>& requests, const Event& between = {},
                 const OutputSink& listener = {}) {
    config_.overlap_schedule = overlap;
    Engine engine(config_);
    OverlapRun run;
    const OutputSink sink = [&](const RequestOutput& output) {
      OverlapAnswer& answer = run.answers[output.id];
      if (answer.reason != FinishReason::kNone) ++answer.num_outputs_after_end;
      answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
      answer.logprobs.insert(answer.logprobs.end(), output.logprobs.logprobs.begin(),
                             output.logprobs.logprobs.end());
      answer.text += output.text;
      answer.reason = output.finish_reason;
      if (listener) listener(output);
    };
    for (const GenerationRequest& request : requests) engine.submit(request);
    for (int step = 0;; ++step) {
      bool worked = true;
      try {
        worked = engine.step(sink);
      } catch (const std::runtime_error&) {  // thrown by the sink
      }
      engine.check_memory();
      if (!worked) break;
      if (between) between(engine, step, sink);
    }
    EXPECT_FALSE(engine.in_flight());
    EXPECT_EQ(engine.num_used_slots(), 0);
    EXPECT_EQ(engine.stats().num_overlapped_steps > 0, overlap);
    run.stats = engine.stats();
    run.num_preemptions = engine.num_preemptions();
    return run;
  }

  // Runs the requests without and with overlap, expects equal answers, and returns the run with overlap.
  OverlapRun expect_same(const std::vector<GenerationRequest>& requests, const Event& between = {},
                         const OutputSink& listener = {}) {
    const OverlapRun plain = run(false, requests, between, listener);
    OverlapRun overlapped = run(true, requests, between, listener);
    EXPECT_EQ(overlapped.answers.size(), requests.size());
    for (const auto& [id, answer] : plain.answers)
      EXPECT_EQ(overlapped.answers.at(id), answer)
          << "request " << id << ": " << answer.tokens.size() << " and "
          << overlapped.answers.at(id).tokens.size() << " tokens";
    return overlapped;
  }

  static GenerationRequest request(int first, int num_prompt, int max_new_tokens) {
    return {.prompt = prompt_of(first, num_prompt),
            .params = {.max_new_tokens = max_new_tokens, .ignore_eos = true}};
  }

  EngineConfig config_;
};

TEST_P(OverlapSchedule, ProducesTheSameTokensWhenAnswersEndInDifferentSteps) {
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 12; ++i) requests.push_back(request(i, 1 + 9 * i, 1 + 5 * i));
  const OverlapRun overlapped = expect_same(requests);
  // The longest answer needs 56 steps, and its first token is computed by a prefill step.
  EXPECT_GT(overlapped.stats.num_overlapped_steps, 50);
  EXPECT_EQ(overlapped.stats.num_generated_tokens, 12 + 5 * 66);
}

// The engine does not know in advance that these requests end at a stop token.
TEST_P(OverlapSchedule, ProducesTheSameTokensWhenStopTokensEndRequests) {
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 8; ++i) requests.push_back(request(i, 5 + 3 * i, 40));
  const OverlapRun whole = run(false, requests);
  for (size_t i = 0; i < requests.size(); ++i)
    if (i % 4 != 0)
      requests[i].params.stop_token_ids = {whole.answers.at(static_cast<int>(i) + 1).tokens[3 + 4 * i]};
  const OverlapRun overlapped = expect_same(requests);
  int num_stopped = 0;
  for (const auto& [id, answer] : overlapped.answers)
    num_stopped += answer.reason == FinishReason::kStop ? 1 : 0;
  EXPECT_EQ(num_stopped, 6);
}

TEST_P(OverlapSchedule, ProducesTheSameBitsWithRequestsThatSyncWithTheHost) {
  config_.deterministic_inference = true;
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(request(i, 4 + 6 * i, 12 + 8 * i));
    requests.back().params.temperature = 0.9f;
    requests.back().params.seed = 100 + static_cast<uint64_t>(i);
  }
  // While these requests run, each step starts after the previous one has ended.
  requests[0].params.logprobs = 2;
  requests[1].params.frequency_penalty = 0.5f;
  const OverlapRun overlapped = expect_same(requests);
  EXPECT_EQ(overlapped.answers.at(1).logprobs.size(), 12u);
  EXPECT_GT(overlapped.stats.num_overlapped_steps, 20);
  EXPECT_LT(overlapped.stats.num_overlapped_steps, 52 - 20);
}

TEST_P(OverlapSchedule, ProducesTheSameTokensWhenRequestsArePreempted) {
  config_.backend_options.page_size = 4;
  config_.max_total_tokens = 120;
  config_.schedule.conservativeness = 0.0;
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(request(i, 10 + i, 30 + i));
  const OverlapRun overlapped = expect_same(requests);
  EXPECT_GT(overlapped.num_preemptions, 0) << "the test checks too little";
  EXPECT_GT(overlapped.stats.num_evicted_tokens, 0) << "the test checks too little";
}

TEST_P(OverlapSchedule, ProducesTheSameTokensWhenRequestsWaitForARow) {
  config_.max_running_requests = 3;
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 9; ++i) requests.push_back(request(i, 3 + i, 10 + 3 * i));
  const OverlapRun overlapped = expect_same(requests);
  EXPECT_GT(overlapped.stats.num_overlapped_steps, 30);
}

TEST_P(OverlapSchedule, ProducesTheSameTokensWithWindowsAndSharedPrefixes) {
  for (const char* model : {"gemma3-layer-ropes", "mistral-window-hd128", "deepseek-v2-lite",
                            "qwen3-some-layers-slide", "gemma4-shared-kv"}) {
    SCOPED_TRACE(model);
    config_.model_path = ATTEND_SOURCE_DIR "/tests/goldens/" + std::string(model);
    config_.backend_options.page_size = 4;
    std::vector<GenerationRequest> requests;
    for (int i = 0; i < 6; ++i) requests.push_back(request(i % 2, 40 + i / 2, 20 + 7 * i));
    expect_same(requests);
  }
}

TEST_P(OverlapSchedule, FreesARequestThatIsAbortedWhileItsNextStepIsInFlight) {
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 5; ++i) requests.push_back(request(i, 6 + i, 40));
  const OverlapRun whole = run(true, requests);
  for (const int at : {3, 4, 17}) {
    bool was_in_flight = false;
    const OverlapRun overlapped = run(true, requests, [&](Engine& engine, int step, const OutputSink& sink) {
      if (step != at) return;
      was_in_flight = engine.in_flight();
      EXPECT_TRUE(engine.abort(2, sink));
      EXPECT_TRUE(engine.abort(4, sink));
      engine.check_memory();
      // The new request must find free pages and the cached prefix while the step of the aborted requests is
      // still in flight.
      engine.submit(requests[1]);
    });
    EXPECT_TRUE(was_in_flight);
    for (const auto& [id, answer] : overlapped.answers) {
      SCOPED_TRACE(id);
      const OverlapAnswer& other = whole.answers.at(id == 6 ? 2 : id);
      if (id != 2 && id != 4) {
        EXPECT_EQ(answer, other);
        continue;
      }
      EXPECT_EQ(answer.reason, FinishReason::kAbort);
      EXPECT_EQ(answer.num_outputs_after_end, 0);
      EXPECT_EQ(answer.tokens, std::vector<int32_t>(other.tokens.begin(), other.tokens.begin() + at + 1));
    }
  }
}

TEST_P(OverlapSchedule, FinishesTheStepInFlightAfterAllRequestsWereAborted) {
  config_.overlap_schedule = true;
  Engine engine(config_);
  const auto sink = [](const RequestOutput&) {};
  for (int i = 0; i < 3; ++i) engine.submit(request(i, 5, 30));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(engine.step(sink));
  ASSERT_TRUE(engine.in_flight());
  for (RequestId id = 1; id <= 3; ++id) EXPECT_TRUE(engine.abort(id, sink));
  EXPECT_EQ(engine.num_used_slots(), 0);
  EXPECT_EQ(engine.num_running() + engine.num_waiting(), 0);
  engine.flush_cache();
  engine.check_memory();
  engine.submit(request(3, 5, 2));
  EXPECT_TRUE(engine.step(sink)) << "step of the new request";
  EXPECT_EQ(engine.num_running(), 1);
  for (RequestId id = 5; id <= 6; ++id) engine.submit(request(static_cast<int>(id), 5, 30));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(engine.step(sink));
  ASSERT_TRUE(engine.in_flight());
  for (RequestId id = 5; id <= 6; ++id) EXPECT_TRUE(engine.abort(id, sink));
  EXPECT_FALSE(engine.step(sink)) << "no request is left";
  EXPECT_FALSE(engine.in_flight());
  // The engine's destructor waits for the step in flight.
  engine.submit(request(7, 5, 30));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(engine.step(sink));
  EXPECT_TRUE(engine.in_flight());
}

TEST_P(OverlapSchedule, EndsOnlyTheRequestWhoseSinkThrows) {
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(request(i, 6 + i, 20));
  const OverlapRun overlapped = expect_same(requests, {}, [](const RequestOutput& output) {
    if (output.id == 2 && output.request.num_output() == 9) throw std::runtime_error("planted");
  });
  EXPECT_EQ(overlapped.answers.at(2).tokens.size(), 9u);
  EXPECT_EQ(overlapped.answers.at(3).tokens.size(), 20u);
}

TEST_P(OverlapSchedule, EndsOnlyRequestsWithNonFiniteLogits) {
  const auto path = std::filesystem::path(testing::TempDir()) / "attend_overlap_overflowing";
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(request(i, 6 + i, 20));
  const int32_t bad = run(false, requests).answers.at(3).tokens[6];
  testing_support::make_overflowing_model(kLlama, path, bad);
  config_.model_path = path;
  const OverlapRun overlapped = expect_same(requests);
  std::filesystem::remove_all(path);
  int num_failed = 0, num_whole = 0;
  for (const auto& [id, answer] : overlapped.answers) {
    num_failed += answer.reason == FinishReason::kError ? 1 : 0;
    num_whole += answer.reason == FinishReason::kLength ? 1 : 0;
  }
  EXPECT_GT(num_failed, 0);
  EXPECT_GT(num_whole, 0);
}

// Attention that fails once, after a given number of calls of forward().
int forwards_until_failure = -1;
class FailingAttention : public AttentionBackend {
 public:
  explicit FailingAttention(std::unique_ptr<AttentionBackend> inner) : inner_(std::move(inner)) {}
  void plan(const ForwardBatch& batch, Stream& stream) override { inner_->plan(batch, stream); }
  KvDestination destination(const AttentionLayer& layer, const ForwardBatch& batch) override {
    return inner_->destination(layer, batch);
  }
  void forward(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
               Stream& stream) override {
    if (forwards_until_failure >= 0 && forwards_until_failure-- == 0) throw std::bad_alloc();
    inner_->forward(layer, input, batch, stream);
  }

 private:
  std::unique_ptr<AttentionBackend> inner_;
};
constexpr BackendSpec kFailingSpec{.index = kernels::KvIndexKind::kCsr};

TEST_P(OverlapSchedule, FailedStepInFlightEndsRequestsAfterTheirLastTokens) {
  if (GetParam() == DeviceType::kCuda) GTEST_SKIP() << "the failing backend is a CPU backend";
  std::vector<BackendEntry> table(backend_table().begin(), backend_table().end());
  BackendEntry failing = *find_backend(table, "cpu");
  failing.name = "failing";
  failing.aliases = {};
  failing.create = [](const BackendContext& context) -> std::unique_ptr<AttentionBackend> {
    return std::make_unique<FailingAttention>(create_kernel_backend(kFailingSpec, context));
  };
  failing.workspace_bytes = workspace_bytes_with_spec<kFailingSpec>;
  table.push_back(failing);
  config_.backends = table;
  config_.backend_options.attention_backend = "failing";
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 3; ++i) requests.push_back(request(i, 5 + i, 10));
  const OverlapRun whole = run(true, requests);
  RequestId late = 0;
  const OverlapRun overlapped = run(true, requests, [&](Engine& engine, int step, const OutputSink&) {
    if (step == 3) forwards_until_failure = 0;  // the step after the one in flight
    if (step == 4) late = engine.submit(requests[0]);
  });
  EXPECT_EQ(overlapped.stats.num_failed_steps, 1);
  for (RequestId id = 1; id <= 3; ++id) {
    const OverlapAnswer &cut = overlapped.answers.at(id), &all = whole.answers.at(id);
    EXPECT_EQ(cut.reason, FinishReason::kError);
    EXPECT_EQ(cut.tokens, std::vector<int32_t>(all.tokens.begin(), all.tokens.begin() + 5));
    EXPECT_EQ(cut.num_outputs_after_end, 0);
  }
  EXPECT_EQ(overlapped.answers.at(late), whole.answers.at(1)) << "the engine serves later requests";
}

TEST_P(OverlapSchedule, HasNoStepInFlightWhilePaused) {
  config_.overlap_schedule = true;
  AsyncEngine engine(config_);
  std::atomic<int> num_outputs = 0;
  for (int i = 0; i < 3; ++i) engine.submit(request(i, 5, 200), [&](const RequestOutput&) { ++num_outputs; });
  for (int i = 0; i < 20; ++i) {
    engine.pause();
    const int num_before = num_outputs;
    const EngineMetrics metrics = engine.metrics();
    EXPECT_EQ(metrics.num_generated_tokens, num_before);
    // No step is in flight, so no further output may arrive.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(num_outputs, num_before);
    engine.resume();
    while (num_outputs == num_before && engine.metrics().num_running + engine.metrics().num_waiting > 0)
      std::this_thread::yield();
  }
  engine.abort_all();
  EXPECT_TRUE(engine.drain(std::chrono::milliseconds(60000)));
  EXPECT_EQ(engine.metrics().num_used_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(On, OverlapSchedule, testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         [](const auto& param) { return param.param == DeviceType::kCpu ? "Cpu" : "Gpu"; });

}  // namespace
}  // namespace attend
