// attend against Hugging Face transformers: the tiny random models of tests/goldens (its README says what
// each case holds), for every kind of backend, page size and way to batch, on the CPU and in three dtypes on
// a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "attend/attention/resolver.h"
#include "attend/backends/table.h"
#include "attend/model/safetensors.h"
#include "tests/model/golden_driver.h"
#include "tests/support/gpu_device.h"

namespace attend {
namespace {

using test::Extension;
using test::GoldenDriver;
using test::Sequence;
using testing_support::kGpu;

constexpr ModelPlacement kOnCpu{};
constexpr ModelPlacement kDeterministic{.batch_invariant = true};
constexpr ModelPlacement kOnGpu[] = {{kGpu, DType::kF32}, {kGpu, DType::kF16}, {kGpu, DType::kBF16}};
constexpr ModelPlacement kDeterministicOnGpu[] = {
    {kGpu, DType::kF32, true}, {kGpu, DType::kF16, true}, {kGpu, DType::kBF16, true}};

struct Golden {
  Tensor input_ids;  // int32 [n]
  Tensor logits;     // f32 [n, vocab_size]
  Tensor greedy;     // int32 [16]

  std::span<const int32_t> prompt() const { return input_ids.span<int32_t>(); }
  int length() const { return static_cast<int>(prompt().size()); }
};

// Tolerances of a dtype for each prompt of a case, in parts of its largest logit. float32 is what the goldens
// are computed in; of 16 bits the same maths in that dtype, by transformers, is the measure: twice its error
// on the same prompt, and one rounding of the largest logit.
std::vector<float> tolerances_of(DType dtype, const std::filesystem::path& folder, size_t num_prompts) {
  if (dtype == DType::kF32) return std::vector<float>(num_prompts, 1e-4f);
  std::ifstream file(folder / "rounding.json");
  const std::vector<float> errors = nlohmann::json::parse(file).at(std::string(to_string(dtype)));
  const float epsilon = dtype == DType::kBF16 ? 0x1p-9f : 0x1p-12f;
  std::vector<float> tolerances;
  for (const float error : errors) tolerances.push_back(2.0f * error + epsilon);
  return tolerances;
}

std::vector<Golden> read_goldens(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  std::vector<Golden> goldens;
  for (int i = 0; file.find("prompt." + std::to_string(i) + ".input_ids") != nullptr; ++i) {
    const std::string prefix = "prompt." + std::to_string(i) + ".";
    goldens.push_back(
        {file.tensor(prefix + "input_ids"), file.tensor(prefix + "logits"), file.tensor(prefix + "greedy")});
  }
  return goldens;
}

// Backend, case, page size, where it runs and in what.
using Parameters = std::tuple<const char*, const char*, int, ModelPlacement>;

class Goldens : public testing::TestWithParam<Parameters> {
 protected:
  void SetUp() override {
    const auto [backend, name, page_size, placement] = GetParam();
    if (placement.device == kGpu && cuda::device_count() == 0)
      GTEST_SKIP() << "this machine has no GPU that this build can use";
    const std::filesystem::path folder = std::filesystem::path(ATTEND_SOURCE_DIR) / "tests/goldens" / name;
    goldens_ = read_goldens(folder / "golden.safetensors");
    ASSERT_GE(goldens_.size(), 4u);
    tolerances_ = tolerances_of(placement.dtype, folder, goldens_.size());
    ASSERT_EQ(tolerances_.size(), goldens_.size());
    model_ = load_model(folder, read_config(folder), LoadFormat::kAuto, {}, placement);
    int max_len = 0, num_tokens = 0;
    for (const Golden& golden : goldens_) {
      max_len = std::max(max_len, golden.length() + num_greedy(golden));
      num_tokens += golden.length();
    }
    const BackendEntry* entry = find_backend(backend_table(), backend);
    ASSERT_NE(entry, nullptr);
    driver_ = std::make_unique<GoldenDriver>(*model_, placement, *entry, page_size,
                                             static_cast<int>(goldens_.size()), max_len, num_tokens);
  }

  static DType dtype() { return std::get<ModelPlacement>(GetParam()).dtype; }
  static int num_greedy(const Golden& golden) { return static_cast<int>(golden.greedy.shape(0)); }

  std::vector<Sequence> begin_all() {
    std::vector<Sequence> sequences;
    for (const Golden& golden : goldens_) sequences.push_back(driver_->begin(golden.prompt()));
    return sequences;
  }

  // Logits of tokens first .. first + num_new - 1 of a prompt, which are rows row .. of `logits`.
  void expect_logits(size_t prompt, int first, int num_new, const Tensor& logits, int64_t row) {
    const View<float> expected = goldens_[prompt].logits.span<float>();
    float largest = 0.0f, error = 0.0f;
    for (const float value : expected) largest = std::max(largest, std::abs(value));
    const auto vocab_size = static_cast<size_t>(logits.shape(1));
    const auto got = logits.span<float>().subspan(static_cast<size_t>(row) * vocab_size,
                                                  static_cast<size_t>(num_new) * vocab_size);
    for (size_t i = 0; i < got.size(); ++i) {
      const float difference = std::abs(got[i] - expected[static_cast<size_t>(first) * vocab_size + i]);
      // A NaN is an error that no maximum sees.
      error = difference <= error ? error : difference;
    }
    EXPECT_LE(error, tolerances_[prompt] * largest)
        << "prompt " << prompt << ", tokens " << first << " to " << first + num_new - 1;
  }

  // Extends every sequence by some tokens of its prompt, in one step.
  void prefill(std::vector<Sequence>& sequences, const std::vector<int>& num_new) {
    std::vector<Extension> extensions;
    std::vector<size_t> prompts;
    for (size_t i = 0; i < sequences.size(); ++i)
      if (num_new[i] > 0) {
        extensions.push_back({&sequences[i], num_new[i]});
        prompts.push_back(i);
      }
    const Tensor logits = driver_->step(extensions);
    int64_t row = 0;
    for (size_t i = 0; i < extensions.size(); ++i) {
      const auto [sequence, n] = extensions[i];
      expect_logits(prompts[i], sequence->num_computed - n, n, logits, row);
      // The token that decoding starts from.
      if (sequence->num_computed == sequence->num_prompt) {
        const auto last = logits.view()[row + n - 1].span<float>();
        sequence->tokens.push_back(static_cast<int32_t>(std::ranges::max_element(last) - last.begin()));
      }
      row += n;
    }
  }

  // Decodes until each sequence has as many tokens as its golden, then compares and ends them.
  void decode_and_end(std::vector<Sequence>& sequences) {
    for (;;) {
      std::vector<Extension> extensions;
      for (size_t i = 0; i < sequences.size(); ++i)
        if (std::ssize(sequences[i].tokens) < goldens_[i].length() + num_greedy(goldens_[i]))
          extensions.push_back({&sequences[i], 1});
      if (extensions.empty()) break;
      driver_->decode(extensions);
    }
    for (size_t i = 0; i < sequences.size(); ++i) end(i, sequences[i]);
  }

  void end(size_t prompt, const Sequence& sequence) {
    const auto generated = std::span(sequence.tokens).subspan(static_cast<size_t>(sequence.num_prompt));
    const auto expected = goldens_[prompt].greedy.span<int32_t>();
    // Where roundings differ, so may the tokens, and all that follow.
    if (dtype() == DType::kF32) {
      EXPECT_TRUE(std::ranges::equal(generated, expected)) << "greedy tokens of prompt " << prompt;
    }
    driver_->end(sequence);
  }

  std::vector<Golden> goldens_;
  std::vector<float> tolerances_;  // of each prompt, in parts of its largest logit
  std::unique_ptr<Model> model_;
  std::unique_ptr<GoldenDriver> driver_;
};

TEST_P(Goldens, AllPromptsInOneStepGiveTheLogitsAndTokensOfTransformers) {
  std::vector<Sequence> sequences = begin_all();
  std::vector<int> lengths;
  for (const Golden& golden : goldens_) lengths.push_back(golden.length());
  prefill(sequences, lengths);
  decode_and_end(sequences);
}

TEST_P(Goldens, EachPromptAloneGivesTheLogitsAndTokensOfTransformers) {
  for (size_t i = 0; i < goldens_.size(); ++i) {
    Sequence sequence = driver_->begin(goldens_[i].prompt());
    const std::vector<Extension> whole{{&sequence, goldens_[i].length()}};
    expect_logits(i, 0, goldens_[i].length(), driver_->step(whole), 0);
    // The last token once more, by decode(), would store it twice; the first new token is the golden's.
    sequence.tokens.push_back(goldens_[i].greedy.span<int32_t>()[0]);
    const std::vector<Extension> next{{&sequence, 1}};
    while (std::ssize(sequence.tokens) < goldens_[i].length() + num_greedy(goldens_[i]))
      driver_->decode(next);
    end(i, sequence);
  }
}

TEST_P(Goldens, PromptsInTwoChunksGiveTheLogitsAndTokensOfTransformers) {
  std::vector<Sequence> sequences = begin_all();
  std::vector<int> first, second;
  for (const Golden& golden : goldens_) {
    first.push_back((golden.length() + 1) / 2);
    second.push_back(golden.length() / 2);
  }
  prefill(sequences, first);
  prefill(sequences, second);
  decode_and_end(sequences);
}

TEST_P(Goldens, PromptsThatJoinWhileOthersDecodeGiveTheTokensOfTransformers) {
  std::vector<Sequence> sequences;
  sequences.reserve(goldens_.size());
  for (const Golden& golden : goldens_) {
    sequences.push_back(driver_->begin(golden.prompt()));
    std::vector<Extension> extensions;
    for (Sequence& sequence : sequences)
      extensions.push_back(
          {&sequence, static_cast<int>(std::ssize(sequence.tokens)) - sequence.num_computed});
    driver_->decode(extensions);
  }
  decode_and_end(sequences);
}

std::string name_of(const testing::TestParamInfo<Parameters>& test) {
  const auto [backend, name, page_size, placement] = test.param;
  std::string text = std::string(backend) + "_" + name + "_page" + std::to_string(page_size);
  if (placement.device == kGpu) text += "_gpu_" + std::string(to_string(placement.dtype));
  if (placement.batch_invariant) text += "_deterministic";
  std::ranges::replace(text, '-', '_');
  return text;
}

constexpr const char* kCases[] = {"llama-gqa4-hd32",       "llama-mha-hd64-tied", "llama-rope-llama3",
                                  "llama-rope-linear",     "llama-rope-dynamic",  "llama-rope-yarn",
                                  "llama-rope-parameters", "llama-biases",        "mistral-window-hd128",
                                  "mistral-full-hd80",     "qwen2-gqa7-hd64",     "qwen2-some-layers-slide",
                                  "qwen3-gqa2-hd128",      "qwen3-gqa3-hd256",    "qwen3-yarn",
                                  "seed-oss-biases",       "llama-f16",           "llama-bf16",
                                  "llama-sharded"};

INSTANTIATE_TEST_SUITE_P(Transformers, Goldens,
                         testing::Combine(testing::Values("torch_native", "cpu"), testing::ValuesIn(kCases),
                                          testing::Values(1, 16, 64), testing::Values(kOnCpu)),
                         name_of);
// A backend of each kind of index: request rows, page table, CSR.
INSTANTIATE_TEST_SUITE_P(TransformersOnGpu, Goldens,
                         testing::Combine(testing::Values("triton", "fa3", "flashinfer"),
                                          testing::ValuesIn(kCases), testing::Values(1, 64),
                                          testing::ValuesIn(kOnGpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(TransformersDeterministic, Goldens,
                         testing::Combine(testing::Values("cpu"), testing::ValuesIn(kCases),
                                          testing::Values(16), testing::Values(kDeterministic)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(TransformersDeterministicOnGpu, Goldens,
                         testing::Combine(testing::Values("fa3"), testing::ValuesIn(kCases),
                                          testing::Values(16), testing::ValuesIn(kDeterministicOnGpu)),
                         name_of);

}  // namespace
}  // namespace attend
