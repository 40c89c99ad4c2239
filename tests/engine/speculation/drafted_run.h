// Runs of requests with drafts of a model or a head, compared with runs without drafts.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <initializer_list>
#include <map>
#include <random>
#include <vector>

#include "attend/engine/engine.h"

namespace attend::model_drafter_test {

std::filesystem::path golden(const std::string& name);

// Model with the weights of llama-gqa4-hd32, some of them scaled, which predicts some of its tokens.
std::filesystem::path similar_llama();

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

struct TestRequest {
  GenerationRequest request;
  bool has_mask = false;
  int submitted_at = 0;    // step
  int aborted_after = -1;  // steps after its submission; -1: not aborted

  GenerationRequest make() const;
  bool is_greedy() const {
    const SamplingParams& params = request.params;
    return params.temperature == 0.0f && params.frequency_penalty == 0.0f && !has_mask;
  }
};

std::vector<int32_t> prompt_tokens(int first, int num_tokens);
TestRequest make_request(int first, int num_prompt, int max_new_tokens);
std::vector<TestRequest> make_requests(int count, int max_new_tokens = 24);

// Deterministic inference in float32.
EngineConfig make_config(const std::string& model, DeviceType device = DeviceType::kCpu);
SpeculativeOptions standalone(const std::filesystem::path& draft, int num_steps = 3);
// Drafts are trees, which deterministic inference does not support.
EngineConfig with_trees(EngineConfig config, int topk, int num_draft_tokens);

// Submits and aborts requests between steps.
DraftedRun run(const EngineConfig& config, const std::vector<TestRequest>& requests, bool aborts = true);
// Runs the requests without and with drafts, expects equal tokens and, with deterministic inference, equal
// bits of logprobs, and returns the run with drafts. An aborted request gets the first tokens of its answer.
DraftedRun expect_same(const EngineConfig& config, const std::vector<TestRequest>& requests);
// Expects that the drafts of the requests, as far as both runs have some, are equal.
void expect_same_drafts(const DraftedRun& expected, const DraftedRun& actual);
// Config of an engine that computes one request at a time and shares no pages.
EngineConfig one_by_one(EngineConfig config);
void expect_all_accepted(const DraftedRun& run);

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

EngineConfig head_drafting(const HeadCase& head, int num_steps = 3, DeviceType device = DeviceType::kCpu);

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

std::vector<TestRequest> random_requests(Random& random);

// Tests on the CPU and on a GPU.
class DeviceTest : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override;
  // The draft model equals the target.
  EngineConfig self_drafting(const std::string& model, int num_steps = 3) {
    EngineConfig config = make_config(model, GetParam());
    config.speculation = standalone(golden(model), num_steps);
    return config;
  }
};
inline std::string device_name(const testing::TestParamInfo<DeviceType>& device) {
  return device.param == DeviceType::kCpu ? "Cpu" : "Gpu";
}
inline const auto kDevices = testing::Values(DeviceType::kCpu, DeviceType::kCuda);

}  // namespace attend::model_drafter_test
