// The bundled model end to end: correct answers, and exactly the tokens of Hugging Face transformers.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "attend/engine/engine.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

const std::filesystem::path kModel = ATTEND_SOURCE_DIR "/models/attend-tiny";

struct TestPrompt {
  std::string prompt, answer, task;
  std::vector<int32_t> input_ids, hf_output_ids;
};

std::vector<TestPrompt> read_test_prompts() {
  std::ifstream file(ATTEND_SOURCE_DIR "/tests/data/attend-tiny-prompts.jsonl");
  std::vector<TestPrompt> prompts;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    prompts.push_back({json.at("prompt"), json.at("answer"), json.at("task"), json.at("input_ids"),
                       json.at("hf_output_ids")});
  }
  return prompts;
}

struct Completion {
  std::string text;
  std::vector<int32_t> input_ids, output_ids;
};

// Submits all prompts at once to one engine, which runs all requests that it admits.
std::vector<Completion> complete(const EngineConfig& config, const std::vector<TestPrompt>& prompts) {
  Engine engine(config);
  std::unordered_map<RequestId, size_t> indices;
  std::vector<Completion> completions(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i)
    indices.emplace(engine.submit(prompts[i].prompt, {.max_new_tokens = 64}), i);
  while (engine.step([&](const RequestOutput& output) {
    Completion& completion = completions[indices.at(output.id)];
    completion.text += output.text;
    if (output.finish_reason == FinishReason::kNone) return;
    const auto& tokens = output.request.tokens;
    completion.input_ids.assign(tokens.begin(), tokens.begin() + output.request.num_prompt);
    completion.output_ids.assign(tokens.begin() + output.request.num_prompt, tokens.end());
  })) {
  }
  EXPECT_EQ(engine.num_used_slots(), 0);
  return completions;
}

class TinyModel : public testing::TestWithParam<std::tuple<DeviceType, int>> {};  // device, page size

TEST_P(TinyModel, MatchesHuggingFaceTransformers) {
  const auto [device, page_size] = GetParam();
  if (device == DeviceType::kCuda && cuda::device_count() == 0)
    GTEST_SKIP() << "this machine has no GPU that this build can use";
  const std::vector<TestPrompt> prompts = read_test_prompts();
  ASSERT_EQ(prompts.size(), 200u);
  EngineConfig config;
  config.model_path = kModel;
  config.device.type = device;
  config.dtype = DType::kF32;
  config.backend_options.page_size = page_size;
  config.kv_cache_dtype = DType::kF32;  // dtype of the goldens
  config.max_running_requests = 24;
  const std::vector<Completion> completions = complete(config, prompts);

  int num_right = 0, num_full_length = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(completions[i].input_ids, prompts[i].input_ids) << "prompt " << i;
    EXPECT_EQ(completions[i].output_ids, prompts[i].hf_output_ids)
        << "prompt " << i << ", task " << prompts[i].task;
    num_right += completions[i].text == prompts[i].answer ? 1 : 0;
    num_full_length += prompts[i].input_ids.size() >= 1500 ? 1 : 0;
  }
  EXPECT_GE(num_right, 190) << "of 200";
  EXPECT_GE(num_full_length, 50) << "prompts that fill the context";
}

std::string name_of(const testing::TestParamInfo<TinyModel::ParamType>& test) {
  const auto [device, page_size] = test.param;
  return (device == DeviceType::kCuda ? "gpu_page" : "cpu_page") + std::to_string(page_size);
}

INSTANTIATE_TEST_SUITE_P(PageSize, TinyModel,
                         testing::Combine(testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                                          testing::Values(1, 16, 64)),
                         name_of);

}  // namespace
}  // namespace attend
