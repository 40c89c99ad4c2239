// Engines answer prompts with images as transformers does (scripts/make_vision_goldens.py), for every way to
// cut a prompt, and share prefixes only among equal images.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "attend/checkpoint/hf/safetensors.h"
#include "attend/engine/engine.h"
#include "attend/tensor/cuda.h"
#include "tests/support/error_message.h"
#include "tests/support/gpu_device.h"

namespace attend {
namespace {

using testing::HasSubstr;
using testing_support::error_message;
using testing_support::kGpu;
using Tokens = std::vector<int32_t>;

constexpr int32_t kPlaceholder = 127, kRowEnd = 12, kImageEnd = 13, kBegin = 124, kEnd = 123;

std::filesystem::path golden_folder(const std::string& name) {
  return std::filesystem::path(ATTEND_SOURCE_DIR) / "tests/goldens" / name;
}

std::string read_image_file(const std::string& name) {
  std::ifstream file(std::filesystem::path(ATTEND_SOURCE_DIR) / "tests/data/images" / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct Answer {
  Tokens tokens;
  std::vector<float> prompt_logprobs;
  int num_prompt = 0, num_cached = 0;
  std::string message;
};

// Submits all requests and returns their answers in the same order.
std::vector<Answer> run(Engine& engine, const std::vector<GenerationRequest>& requests) {
  std::map<RequestId, Answer> answers;
  for (const GenerationRequest& request : requests) answers[engine.submit(request)];
  while (engine.step([&](const RequestOutput& output) {
    Answer& answer = answers[output.id];
    answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
    const auto logprobs = output.prompt_logprobs.logprobs;
    answer.prompt_logprobs.insert(answer.prompt_logprobs.end(), logprobs.begin(), logprobs.end());
    answer.num_prompt = output.request.num_prompt;
    answer.num_cached = output.request.num_cached_tokens;
    if (output.finish_reason == FinishReason::kError) answer.message = output.message;
  }))
    engine.check_memory();
  std::vector<Answer> in_order;
  for (auto& [id, answer] : answers) in_order.push_back(std::move(answer));
  return in_order;
}

// Case, device and dtype of the engine.
using Parameters = std::tuple<const char*, Device, DType>;

class ImageGolden : public testing::TestWithParam<Parameters> {
 protected:
  void SetUp() override {
    if (on_gpu() && cuda::device_count() == 0)
      GTEST_SKIP() << "this machine has no GPU that this build can use";
    config_.model_path = golden_folder(std::get<0>(GetParam()));
    config_.device = std::get<1>(GetParam());
    if (on_gpu()) {
      config_.dtype = config_.kv_cache_dtype = std::get<2>(GetParam());
      config_.max_total_tokens = 4096;
    }
    config_.max_running_requests = 8;
    const SafetensorsFile goldens(config_.model_path / "golden.safetensors");
    for (int i = 0; goldens.find("prompt." + std::to_string(i) + ".greedy") != nullptr; ++i) {
      const std::string prompt = "prompt." + std::to_string(i) + ".";
      GenerationRequest& request = requests_.emplace_back();
      request.prompt = read(goldens, prompt + "input_ids");
      request.params = {.max_new_tokens = 16, .ignore_eos = true};
      const Tokens images = read(goldens, prompt + "images");
      Tokens& expanded = expanded_.emplace_back();
      for (const int32_t id : std::get<Tokens>(request.prompt)) {
        if (id != kPlaceholder) {
          expanded.push_back(id);
          continue;
        }
        const std::string image = "image." + std::to_string(images[request.images.size()]) + ".";
        const Tokens grid = read(goldens, image + "grid");
        const int merge = is_model("vision-gemma4") ? 3 : 2;
        const int rows = grid[0] / merge, columns = grid[1] / merge;  // of tokens
        if (is_model("vision-gemma4")) expanded.push_back(kBegin);
        for (int row = 0; row < rows; ++row) {
          expanded.insert(expanded.end(), static_cast<size_t>(columns), id);
          if (is_model("vision-mistral3")) expanded.push_back(row + 1 < rows ? kRowEnd : kImageEnd);
        }
        if (is_model("vision-gemma4")) expanded.push_back(kEnd);
        const Tensor file = goldens.tensor(image + "file");
        const View<const uint8_t> bytes = file.span<const uint8_t>();
        request.images.emplace_back(bytes.begin(), bytes.end());
      }
      expected_.push_back(read(goldens, prompt + "greedy"));
      logits_.push_back(goldens.tensor(prompt + "logits"));
    }
    ASSERT_GE(requests_.size(), 6u);
  }

  static Tokens read(const SafetensorsFile& file, const std::string& name) {
    const Tensor tensor = file.tensor(name);
    const View<const int32_t> values = tensor.span<const int32_t>();
    return {values.begin(), values.end()};
  }

  void expect_golden_tokens(const std::vector<Answer>& answers) const {
    ASSERT_EQ(answers.size(), expected_.size());
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(answers[i].tokens, expected_[i]) << "prompt " << i << ": " << answers[i].message;
      EXPECT_EQ(answers[i].num_prompt, logits_[i].shape(0)) << "prompt " << i;
    }
  }

  void expect_golden_logprobs() {
    Engine engine(config_);
    for (GenerationRequest& request : requests_) request.params.prompt_logprobs = 0;
    const std::vector<Answer> answers = run(engine, requests_);
    const int64_t vocab_size = engine.model_spec().vocab_size;
    for (size_t i = 0; i < answers.size(); ++i) {
      ASSERT_EQ(std::ssize(answers[i].prompt_logprobs), logits_[i].shape(0) - 1) << "prompt " << i;
      for (int64_t row = 0; row + 1 < logits_[i].shape(0); ++row) {
        const float* const logits = logits_[i].view()[row].as<const float>();
        double sum = 0.0;
        for (int64_t token = 0; token < vocab_size; ++token) sum += std::exp(double{logits[token]});
        const int32_t next = expanded_[i][static_cast<size_t>(row + 1)];
        EXPECT_NEAR(answers[i].prompt_logprobs[static_cast<size_t>(row)], logits[next] - std::log(sum),
                    tolerance(i))
            << "prompt " << i << ", token " << row + 1;
      }
    }
  }

  static bool is_model(const std::string& name) { return std::get<0>(GetParam()) == name; }
  static bool on_gpu() { return std::get<1>(GetParam()).type == DeviceType::kCuda; }
  static bool in_16_bits() { return std::get<2>(GetParam()) != DType::kF32; }
  // Largest error of a log probability. Twice that of logits, which on a GPU are within 1e-4 of the largest
  // one or, in 16 bits, within twice transformers' error and a rounding.
  double tolerance(size_t prompt) const {
    if (!on_gpu()) return 2e-4;
    double largest = 0.0;
    for (const float logit : logits_[prompt].span<const float>())
      largest = std::max(largest, std::abs(double{logit}));
    if (!in_16_bits()) return 2e-4 * largest;
    std::ifstream file(config_.model_path / "rounding.json");
    const nlohmann::json rounding = nlohmann::json::parse(file);
    const auto error = [&](const char* dtype) {
      return rounding.at(dtype).at("logits").at(prompt).get<double>();
    };
    const bool is_bf16 = std::get<2>(GetParam()) == DType::kBF16;
    const double of_dtype = is_bf16 ? error("bfloat16") : std::max(error("float16"), error("bfloat16") / 8);
    return 2.0 * (2.0 * of_dtype + (is_bf16 ? 0x1p-9 : 0x1p-12)) * largest;
  }
  // An image of up to 16 or 10 tokens is computed in one step, with up to 7 other tokens.
  static int chunk(int size) {
    return std::max(size, is_model("vision-gemma3") ? 16 + 7 : is_model("vision-gemma4") ? 10 + 7 : 1);
  }

  EngineConfig config_;
  std::vector<GenerationRequest> requests_;
  std::vector<Tokens> expanded_, expected_;
  std::vector<Tensor> logits_;  // [tokens, vocab_size] of the expanded prompts
};

TEST_P(ImageGolden, MatchesTheTokensOfTransformersForEveryChunkSize) {
  const std::vector<int> sizes = on_gpu() ? std::vector{512, 24, 9} : std::vector{512, 64, 37, 24, 17, 16, 9};
  for (const int page_size : {1, 16})
    for (const int size : sizes) {
      if (chunk(size) != size) continue;
      config_.chunked_prefill_size = size;
      config_.backend_options.page_size = page_size;
      Engine engine(config_);
      SCOPED_TRACE("chunks of " + std::to_string(size) + ", pages of " + std::to_string(page_size));
      expect_golden_tokens(run(engine, requests_));
    }
}

TEST_P(ImageGolden, MatchesTheLogitsOfTransformers) {
  config_.chunked_prefill_size = 23;
  config_.disable_radix_cache = true;
  expect_golden_logprobs();
}

TEST_P(ImageGolden, EncodesAnEvictedImageAgain) {
  config_.chunked_prefill_size = chunk(16);
  config_.image_cache_bytes = 0;
  Engine engine(config_);
  expect_golden_tokens(run(engine, requests_));
}

TEST_P(ImageGolden, MatchesTheTokensOfTransformersAfterPreemptions) {
  config_.backend_options.page_size = 1;
  config_.max_total_tokens = 24;
  config_.schedule.conservativeness = 0.0;
  config_.disable_radix_cache = true;
  for (const Tensor& logits : logits_) config_.max_total_tokens += logits.shape(0);
  Engine engine(config_);
  expect_golden_tokens(run(engine, requests_));
  // All images are encoded now, so all requests begin in one step.
  expect_golden_tokens(run(engine, requests_));
  EXPECT_GT(engine.num_preemptions(), 0);
}

TEST_P(ImageGolden, MatchesTheTokensOfTransformersWithDrafts) {
  config_.speculation = {.algorithm = SpeculativeAlgorithm::kNgram,
                         .num_draft_tokens = 4,
                         .ngram_min_match_window_size = 1,
                         .disable_by_batch_size = 16};
  Engine engine(config_);
  expect_golden_tokens(run(engine, requests_));
}

TEST_P(ImageGolden, SharesAPrefixWithTheSameImageOnly) {
  config_.backend_options.page_size = 1;
  const auto ask = [&](Engine& engine, const std::string& file) {
    const GenerationRequest request{.prompt = Tokens{11, 12, 13, 14, kPlaceholder, 15, 16, 17},
                                    .images = {read_image_file(file)},
                                    .params = {.max_new_tokens = 8, .ignore_eos = true}};
    return run(engine, {request}).front();
  };
  Engine engine(config_);
  const Answer first = ask(engine, "orientation-2.jpg"), flipped = ask(engine, "orientation-4.jpg"),
               again = ask(engine, "orientation-2.jpg");
  EXPECT_EQ(first.num_cached, 0);
  // The images have equal sizes, so only keys of their pixels differ.
  EXPECT_EQ(flipped.num_prompt, first.num_prompt);
  const int num_before = is_model("vision-gemma4") ? 5 : 4;  // tokens before the image's
  EXPECT_LE(flipped.num_cached, num_before);
  // A prefix of a model with recurrent states ends at a saved state.
  if (!engine.model_spec().has_states()) {
    EXPECT_EQ(flipped.num_cached, num_before);
    EXPECT_EQ(again.num_cached, again.num_prompt - 1);
  }
  EXPECT_EQ(again.tokens, first.tokens);
  config_.disable_radix_cache = true;
  Engine other(config_);
  EXPECT_EQ(ask(other, "orientation-4.jpg").tokens, flipped.tokens);
}

TEST_P(ImageGolden, ContinuesAPrefixThatEndsWithinAnImage) {
  config_.backend_options.page_size = 8;
  Engine engine(config_);
  expect_golden_tokens(run(engine, requests_));
  // Prompts of other requests are cached up to pages that end within images.
  const std::vector<Answer> again = run(engine, requests_);
  expect_golden_tokens(again);
  const bool caches_pages = !engine.model_spec().has_states();
  EXPECT_GT(again.front().num_cached, caches_pages ? 8 : -1);
}

constexpr const char* kCases[] = {"vision-qwen3-vl", "vision-qwen2-5-vl", "vision-qwen3-5",
                                  "vision-gemma3",   "vision-mistral3",   "vision-gemma4"};

std::string name_of(const Parameters& parameters) {
  const auto& [name, device, dtype] = parameters;
  std::string text = name;
  std::ranges::replace(text, '-', '_');
  return text + (device.type == DeviceType::kCpu ? "" : "_gpu_" + std::string(to_string(dtype)));
}

INSTANTIATE_TEST_SUITE_P(, ImageGolden,
                         testing::Combine(testing::ValuesIn(kCases), testing::Values(Device{}, kGpu),
                                          testing::Values(DType::kF32)),
                         [](const auto& param) { return name_of(param.param); });

// Rounding changes tokens.
class ImageGoldenIn16Bits : public ImageGolden {};

TEST_P(ImageGoldenIn16Bits, MatchesTheLogitsOfTransformers) {
  config_.chunked_prefill_size = 23;
  config_.disable_radix_cache = true;
  expect_golden_logprobs();
}

INSTANTIATE_TEST_SUITE_P(, ImageGoldenIn16Bits,
                         testing::Combine(testing::ValuesIn(kCases), testing::Values(kGpu),
                                          testing::Values(DType::kF16, DType::kBF16)),
                         [](const auto& param) { return name_of(param.param); });

TEST_P(ImageGolden, RunsStepsOfOtherRequestsWhileAnImageIsEncoded) {
  if (on_gpu()) GTEST_SKIP() << "a GPU encodes a small image in one step";
  Engine engine(config_);
  const RequestId text =
      engine.submit(Tokens{3, 4, 5}, SamplingParams{.max_new_tokens = 200, .ignore_eos = true});
  const auto no_sink = [](const RequestOutput&) {};
  while (engine.stats().num_generated_tokens < 3) ASSERT_TRUE(engine.step(no_sink));
  const RequestId id = engine.submit(requests_.front());
  // By request: tokens before the first token of the other one.
  int num_text_tokens = 0;
  Tokens answer;
  while (answer.size() < expected_.front().size())
    ASSERT_TRUE(engine.step([&](const RequestOutput& output) {
      if (output.id == id)
        answer.insert(answer.end(), output.token_ids.begin(), output.token_ids.end());
      else if (answer.empty())
        num_text_tokens += static_cast<int>(output.token_ids.size());
    }));
  // A tower of n layers has 2 n + 1 parts, each followed by a step.
  EXPECT_GE(num_text_tokens, 2 * engine.model_spec().vision->num_layers + 1);
  EXPECT_EQ(answer, expected_.front());
  EXPECT_TRUE(engine.abort(text, no_sink));
}

TEST_P(ImageGolden, ContinuesAfterARequestIsAbortedWhoseImageIsBeingEncoded) {
  const auto no_sink = [](const RequestOutput&) {};
  // The step counts the parts; the first step admits the request.
  for (int num_steps = 0; num_steps < 6; ++num_steps) {
    Engine engine(config_);
    const RequestId id = engine.submit(requests_.front());
    for (int i = 0; i < num_steps; ++i) ASSERT_TRUE(engine.step(no_sink));
    EXPECT_TRUE(engine.abort(id, no_sink));
    engine.check_memory();
    EXPECT_EQ(engine.num_running() + engine.num_waiting(), 0);
    EXPECT_FALSE(engine.step(no_sink));
    expect_golden_tokens(run(engine, requests_));
  }
}

class ImageErrors : public testing::Test {
 protected:
  std::string message(const EngineConfig& config, GenerationRequest request,
                      ErrorCode code = ErrorCode::kInvalidArgument) {
    Engine engine(config);
    return error_message(code, [&] { (void)engine.prepare(std::move(request)); });
  }
  ImageErrors() { config_.model_path = golden_folder("vision-qwen3-vl"); }

  EngineConfig config_;
  const std::string image_ = read_image_file("rgb.jpg");
};

TEST_F(ImageErrors, NameTheNumberOfPlaceholders) {
  EXPECT_THAT(message(config_, {.prompt = Tokens{3, kPlaceholder, 4}, .images = {image_, image_}}),
              HasSubstr("images: 2, but the prompt has 1 placeholders (token 127)"));
  EXPECT_THAT(message(config_, {.prompt = Tokens{3, kPlaceholder, 4}}),
              HasSubstr("token id 127: the placeholder of an image, but the request has no image"));
}

TEST_F(ImageErrors, NameTheImage) {
  const Tokens prompt{3, kPlaceholder, kPlaceholder};
  EXPECT_THAT(message(config_, {.prompt = prompt, .images = {image_, "GIF89a"}}),
              HasSubstr("image 2: image of 6 bytes: not a JPEG, PNG or WebP file"));
  EXPECT_THAT(message(config_, {.prompt = prompt, .images = {image_.substr(0, image_.size() - 100), image_}}),
              HasSubstr("image 1: JPEG image: the file is truncated"));
}

TEST_F(ImageErrors, CountTheTokensOfImages) {
  config_.context_length = 20;
  EXPECT_THAT(message(config_, {.prompt = Tokens{3, kPlaceholder, 4}, .images = {image_}}),
              HasSubstr("prompt of 22 tokens: the context length is 20"));
}

TEST_F(ImageErrors, GiveTheChunkThatAnImageNeeds) {
  config_.model_path = golden_folder("vision-gemma3");
  config_.max_running_requests = 8;
  config_.chunked_prefill_size = 22;
  EXPECT_THAT(
      message(config_, {.prompt = Tokens{3, kPlaceholder}, .images = {image_}}, ErrorCode::kUnsupported),
      HasSubstr("images: a step computes all 16 tokens of an image: chunked_prefill_size is 22, expected at "
                "least 23"));
  // Text needs no such chunk.
  Engine engine(config_);
  EXPECT_EQ(run(engine, {{.prompt = Tokens{3, 4}, .params = {.max_new_tokens = 2, .ignore_eos = true}}})
                .front()
                .tokens.size(),
            2u);
}

TEST(ImagePlaceholders, ReplaceTheTextOfATemplateOnly) {
  const ModelSpec gemma = read_config(golden_folder("vision-gemma3"));
  std::vector<ChatTemplate::Part> parts{{"<turn><start_of_image>", false},
                                        {"<start_of_image>", true},
                                        {"a<start_of_image><start_of_image>", false}};
  write_placeholders(gemma, parts);
  const std::string image = "\n\n<start_of_image><image_soft_token><end_of_image>\n\n";
  EXPECT_EQ(parts[0].text, "<turn>" + image);
  EXPECT_EQ(parts[1].text, "<start_of_image>");
  EXPECT_EQ(parts[2].text, "a" + image + image);
  std::string text = "<start_of_image>";
  write_placeholders(read_config(golden_folder("vision-mistral3")), text);
  EXPECT_EQ(text, "<start_of_image>");
}

TEST_F(ImageErrors, GiveTheReasonWhyAModelTakesNone) {
  config_.model_path = golden_folder("qwen3-gqa2-hd128");
  EXPECT_THAT(message(config_, {.prompt = Tokens{3, 4}, .images = {image_}}, ErrorCode::kUnsupported),
              HasSubstr("images: Qwen3ForCausalLM is supported with text only"));
}

}  // namespace
}  // namespace attend
