// attend matches Hugging Face transformers on the tiny random models of tests/goldens (its README describes
// the cases), for every kind of backend, page size and way to batch, on the CPU and in three dtypes on a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "attend/attention/resolver.h"
#include "attend/backends/table.h"
#include "attend/checkpoint/hf/safetensors.h"
#include "tests/model/golden_driver.h"
#include "tests/model/local_batches.h"
#include "tests/support/gpu_device.h"

namespace attend {
namespace {

using test::Extension;
using test::GoldenDriver;
using test::Sequence;
using testing_support::kGpu;

constexpr ModelPlacement kOnCpu{};
constexpr ModelPlacement kDeterministic{.batch_invariant = true};
constexpr ModelPlacement kRounded[] = {{.rounds_x = true}, {.batch_invariant = true, .rounds_x = true}};
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

// Tolerances for each prompt of a case, relative to its largest logit. The goldens are computed in float32.
// For 16-bit dtypes, the tolerance is twice the error of transformers in the same dtype on the same prompt,
// plus one rounding of the largest logit. A short prompt is a small sample of that error, so float16 has a
// second bound: an eighth of the error of bfloat16, which rounds eight times as coarsely.
std::vector<float> tolerances_of(DType dtype, const std::filesystem::path& folder, size_t num_prompts) {
  if (dtype == DType::kF32) return std::vector<float>(num_prompts, 1e-4f);
  std::ifstream file(folder / "rounding.json");
  const nlohmann::json rounding = nlohmann::json::parse(file);
  const auto of_bf16 = rounding.at("bfloat16").get<std::vector<float>>();
  std::vector<float> errors = of_bf16;
  if (dtype == DType::kF16) {
    errors = rounding.at("float16").get<std::vector<float>>();
    for (size_t i = 0; i < errors.size(); ++i) errors[i] = std::max(errors[i], of_bf16[i] / 8.0f);
  }
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

// Backend, case, page size, and placement (device, dtype, mode).
using Parameters = std::tuple<const char*, const char*, int, ModelPlacement>;

class Goldens : public testing::TestWithParam<Parameters> {
 protected:
  // dtype of the KV cache; empty: dtype of the activations.
  virtual std::optional<DType> kv_dtype() const { return {}; }

  void SetUp() override {
    const auto [backend, name, page_size, placement] = GetParam();
    if (placement.device == kGpu && cuda::device_count() == 0)
      GTEST_SKIP() << "this machine has no GPU that this build can use";
    const std::filesystem::path folder = std::filesystem::path(ATTEND_SOURCE_DIR) / "tests/goldens" / name;
    goldens_ = read_goldens(folder / "golden.safetensors");
    ASSERT_GE(goldens_.size(), 4u);
    tolerances_ = tolerances_of(dtype(), folder, goldens_.size());
    ASSERT_EQ(tolerances_.size(), goldens_.size());
    // e4m3 rounds 32 times as coarsely as bfloat16, but only the KV cache is rounded to it.
    if (kv_dtype()) {
      const std::vector<float> of_bf16 = tolerances_of(DType::kBF16, folder, goldens_.size());
      for (size_t i = 0; i < tolerances_.size(); ++i) tolerances_[i] += 0x1p-4f / 0x1p-9f * of_bf16[i];
    }
    model_ = load_model(folder, read_config(folder), LoadFormat::kAuto, {}, placement);
    int max_len = 0, num_tokens = 0;
    for (const Golden& golden : goldens_) {
      max_len = std::max(max_len, golden.length() + num_greedy(golden));
      num_tokens += golden.length();
    }
    const BackendEntry* entry =
        backend == test::kLocalBatches.name ? &test::kLocalBatches : find_backend(backend_table(), backend);
    ASSERT_NE(entry, nullptr);
    driver_ =
        std::make_unique<GoldenDriver>(*model_, placement, *entry, page_size,
                                       static_cast<int>(goldens_.size()), max_len, num_tokens, kv_dtype());
  }

  // dtype of the model's computation.
  static DType dtype() {
    const ModelPlacement& placement = std::get<ModelPlacement>(GetParam());
    return placement.rounds_x ? DType::kBF16 : placement.dtype;
  }
  static int num_greedy(const Golden& golden) { return static_cast<int>(golden.greedy.shape(0)); }

  std::vector<Sequence> begin_all() {
    std::vector<Sequence> sequences;
    for (const Golden& golden : goldens_) sequences.push_back(driver_->begin(golden.prompt()));
    return sequences;
  }

  // Checks the logits of tokens first .. first + num_new - 1 of a prompt, which start at `row` of `logits`.
  void expect_logits(size_t prompt, int first, int num_new, const Tensor& logits, int64_t row) {
    const View<float> expected = goldens_[prompt].logits.span<float>();
    float largest = 0.0f, error = 0.0f;
    for (const float value : expected) largest = std::max(largest, std::abs(value));
    const auto vocab_size = static_cast<size_t>(logits.shape(1));
    const auto got = logits.span<float>().subspan(static_cast<size_t>(row) * vocab_size,
                                                  static_cast<size_t>(num_new) * vocab_size);
    for (size_t i = 0; i < got.size(); ++i) {
      const float difference = std::abs(got[i] - expected[static_cast<size_t>(first) * vocab_size + i]);
      // A NaN compares false; std::max would drop it.
      error = difference <= error ? error : difference;
    }
    EXPECT_LE(error, tolerances_[prompt] * largest)
        << "prompt " << prompt << ", tokens " << first << " to " << first + num_new - 1;
  }

  // Extends every sequence by the given number of prompt tokens in one step.
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
      // Appends the first generated token.
      if (sequence->num_computed == sequence->num_prompt) {
        const auto last = logits.view()[row + n - 1].span<float>();
        sequence->tokens.push_back(static_cast<int32_t>(std::ranges::max_element(last) - last.begin()));
      }
      row += n;
    }
  }

  // Decodes until each sequence has the length of its golden. Then compares and ends all sequences.
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
    // In 16 bits, rounding can change a token and thus all later ones.
    if (dtype() == DType::kF32 && !kv_dtype()) {
      EXPECT_TRUE(std::ranges::equal(generated, expected)) << "greedy tokens of prompt " << prompt;
    }
    driver_->end(sequence);
  }

  std::vector<Golden> goldens_;
  std::vector<float> tolerances_;  // per prompt, relative to its largest logit
  std::unique_ptr<Model> model_;
  std::unique_ptr<GoldenDriver> driver_;
};

TEST_P(Goldens, OneStepMatchesTransformers) {
  std::vector<Sequence> sequences = begin_all();
  std::vector<int> lengths;
  for (const Golden& golden : goldens_) lengths.push_back(golden.length());
  prefill(sequences, lengths);
  decode_and_end(sequences);
}

TEST_P(Goldens, SinglePromptsMatchTransformers) {
  for (size_t i = 0; i < goldens_.size(); ++i) {
    Sequence sequence = driver_->begin(goldens_[i].prompt());
    const std::vector<Extension> whole{{&sequence, goldens_[i].length()}};
    expect_logits(i, 0, goldens_[i].length(), driver_->step(whole), 0);
    // decode() would store the last prompt token twice, so the first new token is taken from the golden.
    sequence.tokens.push_back(goldens_[i].greedy.span<int32_t>()[0]);
    const std::vector<Extension> next{{&sequence, 1}};
    while (std::ssize(sequence.tokens) < goldens_[i].length() + num_greedy(goldens_[i]))
      driver_->decode(next);
    end(i, sequence);
  }
}

TEST_P(Goldens, ChunkedPrefillMatchesTransformers) {
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

// KV cache of latent rows with scales.
class ScaledRowGoldens : public Goldens {
 protected:
  std::optional<DType> kv_dtype() const override { return DType::kU8; }
};

TEST_P(ScaledRowGoldens, ChunkedPrefillNearlyMatchesTransformers) {
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

// Models with recurrent states, which are carried over from chunk to chunk.
class RecurrentGoldens : public Goldens {};

// Chunks of 1 and 2 tokens are shorter than the window of a convolution.
TEST_P(RecurrentGoldens, OddChunksMatchTransformers) {
  std::vector<Sequence> sequences = begin_all();
  for (const int chunk : {1, 2, 1, 60, 1, 2, 1, 1 << 16}) {
    std::vector<int> num_new;
    for (const Sequence& sequence : sequences)
      num_new.push_back(std::min(chunk, sequence.num_prompt - sequence.num_computed));
    if (std::ranges::max(num_new) > 0) prefill(sequences, num_new);
  }
  decode_and_end(sequences);
}

// A row's state remains in memory when its request ends.
TEST_P(RecurrentGoldens, RowsAreReusedWithoutTheirFormerState) {
  for (int round = 0; round < 2; ++round) {
    std::vector<Sequence> sequences = begin_all();
    std::vector<int> lengths;
    for (const Golden& golden : goldens_) lengths.push_back(golden.length());
    prefill(sequences, lengths);
    decode_and_end(sequences);
  }
}

TEST_P(Goldens, MixedStepsMatchTransformers) {
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
  if (placement.rounds_x) text += "_rounded";
  std::ranges::replace(text, '-', '_');
  return text;
}

constexpr const char* kCases[] = {"llama-gqa4-hd32",
                                  "llama-mha-hd64-tied",
                                  "llama-rope-llama3",
                                  "llama-rope-linear",
                                  "llama-rope-dynamic",
                                  "llama-rope-yarn",
                                  "llama-rope-parameters",
                                  "llama-biases",
                                  "mistral-window-hd128",
                                  "mistral-full-hd80",
                                  "qwen2-gqa7-hd64",
                                  "qwen2-some-layers-slide",
                                  "qwen3-gqa2-hd128",
                                  "qwen3-gqa3-hd256",
                                  "qwen3-yarn",
                                  "seed-oss-biases",
                                  "llama-f16",
                                  "llama-bf16",
                                  "llama-sharded",
                                  "gemma2-caps-window",
                                  "gemma2-bf16",
                                  "gemma2-no-caps",
                                  "gemma3-local-rope",
                                  "gemma3-layer-ropes",
                                  "gemma3-multimodal",
                                  "phi3-longrope",
                                  "phi3-partial-window",
                                  "olmo2-post-norms",
                                  "glm4-interleaved-rope",
                                  "ministral-some-layers-slide",
                                  "qwen3-some-layers-slide",
                                  "qwen3-moe-some-dense",
                                  "qwen3-moe-sparse-step",
                                  "mixtral-top2"};
// Architectures that combine the parts of others.
constexpr const char* kVariantCases[] = {"gemma-first",
                                         "glm-interleaved-rope",
                                         "ernie4-5-biases",
                                         "internlm3-biases",
                                         "exaone4-some-layers-rotate",
                                         "exaone4-all-full",
                                         "smollm3-some-layers-rotate",
                                         "olmo3-windows-yarn",
                                         "granite-multipliers",
                                         "granite-bf16-tied",
                                         "ministral3-temperature",
                                         "mistral3-multimodal",
                                         "qwen2-5-vl-flat",
                                         "qwen3-vl-nested",
                                         "qwen3-vl-moe-fused",
                                         "olmoe-top3",
                                         "minimax-m2-partial",
                                         "glm4-moe-norms",
                                         "glm4-moe-plain",
                                         "dots1-groups",
                                         "llama-mqa24-hd16",
                                         "gpt2-bare-names",
                                         "gptj-parallel",
                                         "gpt-neox-parallel",
                                         "gpt-neox-sequential",
                                         "phi-parallel",
                                         "cohere-parallel",
                                         "cohere2-windows",
                                         "opt-relu",
                                         "falcon-multi-query",
                                         "falcon-new",
                                         "stablelm-partial",
                                         "starcoder2-window",
                                         "nemotron-relu2",
                                         "olmo-clip",
                                         "arcee-relu2",
                                         "qwen2-moe-shared",
                                         "granite-moe",
                                         "granite-moe-shared",
                                         "ernie4-5-moe",
                                         "hunyuan-dense",
                                         "hunyuan-moe",
                                         "hy-v3",
                                         "exaone-moe",
                                         "cohere2-moe-average",
                                         "cohere2-moe-sigmoid",
                                         "phimoe-sparsemixer",
                                         "laguna-head-gates",
                                         "laguna-feature-gates",
                                         "apertus-xielu",
                                         "olmoe-clip",
                                         "falcon-two-norms",
                                         "stablelm-qk-norms",
                                         "cohere-qk-norms",
                                         "qwen3-head-dim-20",
                                         "gpt2-head-dim-59",
                                         "muse-glimmer-gates"};
// Layers with recurrent states.
constexpr const char* kRecurrentCases[] = {"qwen3-next-grouped",   "qwen3-next-some-dense",
                                           "qwen3-5-nested",       "qwen3-5-text-tied",
                                           "qwen3-5-moe-fused",    "bamba-mamba2",
                                           "bamba-biases",         "granite-hybrid-experts",
                                           "granite-hybrid-dense", "falcon-h1-gate-only",
                                           "falcon-h1-norm-first", "nemotron-h-experts",
                                           "nemotron-h-dense",     "lfm2-conv",
                                           "lfm2-biases",          "lfm2-moe",
                                           "kimi-linear-kda",      "kimi-linear-groups",
                                           "olmo-hybrid-nope",     "olmo-hybrid-rope"};
// Heads of two sizes, up to 512, which not every backend supports.
constexpr const char* kGemma4Cases[] = {"gemma4-shared-kv",        "gemma4-experts", "gemma4-wide-heads",
                                        "gemma4-per-layer-config", "gemma4-unified", "gemma4-fp8-channel"};
// Multi-head latent attention. Prompts are expanded, except in deterministic mode, in which all steps are
// absorbed. The reference backend runs in a separate instance since it is slow with 576 numbers per key.
constexpr ModelPlacement kEitherForm[] = {kOnCpu, kDeterministic};
constexpr const char* kSmallLatentCases[] = {"kimi-k25-text", "mistral4-temperature", "minicpm3-scales"};
constexpr const char* kMlaCases[] = {"deepseek-v2-lite", "deepseek-v2-groups", "deepseek-v3",
                                     "glm4-moe-lite"};

// Sparse attention to keys that an indexer selects.
constexpr const char* kSparseCases[] = {"deepseek-v32-indexer", "glm-moe-dsa-shared"};

// Sinks and chunks, which not every backend supports.
constexpr const char* kSinksAndChunks[] = {"gpt-oss-sinks-window", "gpt-oss-defaults", "llama4-chunks",
                                           "llama4-interleaved"};
// The goldens are computed by transformers from the dequantized weights.
constexpr const char* kQuantizedCases[] = {
    "llama-fp8-tensor",      "llama-fp8-channel",    "qwen3-fp8-blocks",      "llama-awq",
    "qwen2-gptq-act-order",  "llama-gptq-v2",        "llama-int4-packed",     "llama-int4-packed-zeros",
    "llama-mxfp4",           "qwen3-moe-fp8-blocks", "mixtral-awq",           "gpt-oss-mxfp4",
    "ministral3-fp8-tensor", "llama4-fp8-by-expert", "llama4-fp8-tensor",     "qwen3-vl-moe-fp8-blocks",
    "llama-int8-channel",    "qwen2-gptq-int8",      "qwen3-moe-int8-packed", "qwen2-gptq-mixed",
    "qwen3-moe-fp8-int4"};

INSTANTIATE_TEST_SUITE_P(Transformers, Goldens,
                         testing::Combine(testing::Values("torch_native", "cpu"), testing::ValuesIn(kCases),
                                          testing::Values(1, 16, 64), testing::Values(kOnCpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Gemma4, Goldens,
                         testing::Combine(testing::Values("torch_native", "cpu"),
                                          testing::ValuesIn(kGemma4Cases), testing::Values(1, 16, 64),
                                          testing::Values(kOnCpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Gemma4Deterministic, Goldens,
                         testing::Combine(testing::Values("cpu"), testing::ValuesIn(kGemma4Cases),
                                          testing::Values(16), testing::Values(kDeterministic)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Gemma4OnGpu, Goldens,
                         testing::Combine(testing::Values("triton"), testing::ValuesIn(kGemma4Cases),
                                          testing::Values(1, 64), testing::ValuesIn(kOnGpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Gemma4DeterministicOnGpu, Goldens,
                         testing::Combine(testing::Values("triton"), testing::ValuesIn(kGemma4Cases),
                                          testing::Values(16), testing::ValuesIn(kDeterministicOnGpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Variants, Goldens,
                         testing::Combine(testing::Values("cpu"), testing::ValuesIn(kVariantCases),
                                          testing::Values(16), testing::Values(kOnCpu, kDeterministic)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Recurrent, Goldens,
                         testing::Combine(testing::Values("cpu"), testing::ValuesIn(kRecurrentCases),
                                          testing::Values(1, 16), testing::Values(kOnCpu, kDeterministic)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Recurrent, RecurrentGoldens,
                         testing::Combine(testing::Values("cpu"), testing::ValuesIn(kRecurrentCases),
                                          testing::Values(16), testing::Values(kOnCpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(RecurrentOnGpu, Goldens,
                         testing::Combine(testing::Values("fa3"), testing::ValuesIn(kRecurrentCases),
                                          testing::Values(64), testing::ValuesIn(kOnGpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(RecurrentDeterministicOnGpu, Goldens,
                         testing::Combine(testing::Values("triton"), testing::ValuesIn(kRecurrentCases),
                                          testing::Values(16), testing::ValuesIn(kDeterministicOnGpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(RecurrentOnGpu, RecurrentGoldens,
                         testing::Combine(testing::Values("fa3"), testing::ValuesIn(kRecurrentCases),
                                          testing::Values(16), testing::ValuesIn(kOnGpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(VariantsOnGpu, Goldens,
                         testing::Combine(testing::Values("fa3"), testing::ValuesIn(kVariantCases),
                                          testing::Values(64), testing::ValuesIn(kOnGpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(VariantsDeterministicOnGpu, Goldens,
                         testing::Combine(testing::Values("fa3"), testing::ValuesIn(kVariantCases),
                                          testing::Values(16), testing::ValuesIn(kDeterministicOnGpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(TransformersOnCpu, Goldens,
                         testing::Combine(testing::Values("torch_native", "cpu", "triton", "fa3"),
                                          testing::ValuesIn(kSinksAndChunks), testing::Values(1, 16, 64),
                                          testing::Values(kOnCpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(TransformersByTrtllmOnCpu, Goldens,
                         testing::Combine(testing::Values("trtllm_mha"), testing::ValuesIn(kSinksAndChunks),
                                          testing::Values(16, 64), testing::Values(kOnCpu)),
                         name_of);
// Activations are rounded to bfloat16 before they are multiplied by 16-bit weights.
INSTANTIATE_TEST_SUITE_P(TransformersRoundedOnCpu, Goldens,
                         testing::Combine(testing::Values("cpu"),
                                          testing::Values("llama-bf16", "gemma2-bf16"), testing::Values(16),
                                          testing::ValuesIn(kRounded)),
                         name_of);
// Chunks of 16 as virtual requests; the page size must divide the chunk.
INSTANTIATE_TEST_SUITE_P(TransformersByVirtualBatches, Goldens,
                         testing::Combine(testing::Values("local_batches"),
                                          testing::Values("llama4-chunks", "llama4-interleaved"),
                                          testing::Values(1, 4, 16), testing::Values(kOnCpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(TransformersDeterministicOnCpu, Goldens,
                         testing::Combine(testing::Values("cpu"), testing::ValuesIn(kSinksAndChunks),
                                          testing::Values(16), testing::Values(kDeterministic)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(TransformersQuantized, Goldens,
                         testing::Combine(testing::Values("cpu"), testing::ValuesIn(kQuantizedCases),
                                          testing::Values(16), testing::Values(kOnCpu, kDeterministic)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(MlaQuantized, Goldens,
                         testing::Combine(testing::Values("cpu"), testing::Values("deepseek-v3-fp8-blocks"),
                                          testing::Values(64), testing::Values(kOnCpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(MlaOnReference, Goldens,
                         testing::Combine(testing::Values("torch_native"), testing::ValuesIn(kMlaCases),
                                          testing::Values(16), testing::ValuesIn(kEitherForm)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Mla, Goldens,
                         testing::Combine(testing::Values("cpu"), testing::ValuesIn(kMlaCases),
                                          testing::Values(1, 16, 64), testing::ValuesIn(kEitherForm)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Sparse, Goldens,
                         testing::Combine(testing::Values("dsa"), testing::ValuesIn(kSparseCases),
                                          testing::Values(1, 16, 64), testing::ValuesIn(kEitherForm)),
                         name_of);
// Latent rows that are smaller than those of DeepSeek.
INSTANTIATE_TEST_SUITE_P(MlaSmallRows, Goldens,
                         testing::Combine(testing::Values("torch_native", "cpu", "triton"),
                                          testing::ValuesIn(kSmallLatentCases), testing::Values(16),
                                          testing::ValuesIn(kEitherForm)),
                         name_of);
// Heads of v that are smaller than those of k.
INSTANTIATE_TEST_SUITE_P(UnequalHeads, Goldens,
                         testing::Combine(testing::Values("torch_native", "cpu", "triton", "fa3"),
                                          testing::Values("mimo-v2-flash"), testing::Values(1, 16),
                                          testing::Values(kOnCpu, kDeterministic)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(MlaSmallRowsOnGpu, Goldens,
                         testing::Combine(testing::Values("triton"), testing::ValuesIn(kSmallLatentCases),
                                          testing::Values(16), testing::ValuesIn(kOnGpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(UnequalHeadsOnGpu, Goldens,
                         testing::Combine(testing::Values("triton", "fa3"), testing::Values("mimo-v2-flash"),
                                          testing::Values(1, 64), testing::ValuesIn(kOnGpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(MlaByIndex, Goldens,
                         testing::Combine(testing::Values("triton", "flashinfer", "fa3"),
                                          testing::ValuesIn(kMlaCases), testing::Values(1, 64),
                                          testing::ValuesIn(kEitherForm)),
                         name_of);
// Backends with fixed page sizes.
INSTANTIATE_TEST_SUITE_P(MlaPages1, Goldens,
                         testing::Combine(testing::Values("fa4"), testing::ValuesIn(kMlaCases),
                                          testing::Values(1), testing::ValuesIn(kEitherForm)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(MlaPages64, Goldens,
                         testing::Combine(testing::Values("flashmla"), testing::ValuesIn(kMlaCases),
                                          testing::Values(64), testing::ValuesIn(kEitherForm)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(MlaPages128, Goldens,
                         testing::Combine(testing::Values("cutlass_mla"), testing::ValuesIn(kMlaCases),
                                          testing::Values(128), testing::ValuesIn(kEitherForm)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(MlaPages32And64, Goldens,
                         testing::Combine(testing::Values("trtllm_mla"), testing::ValuesIn(kMlaCases),
                                          testing::Values(32, 64), testing::ValuesIn(kEitherForm)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Mla, ScaledRowGoldens,
                         testing::Combine(testing::Values("torch_native", "cpu", "triton", "flashmla"),
                                          testing::ValuesIn(kMlaCases), testing::Values(64),
                                          testing::ValuesIn(kEitherForm)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(MlaOnGpu, ScaledRowGoldens,
                         testing::Combine(testing::Values("triton", "flashmla"), testing::ValuesIn(kMlaCases),
                                          testing::Values(64), testing::ValuesIn(kOnGpu)),
                         name_of);
// One backend per kind of index: request rows, page table, CSR.
INSTANTIATE_TEST_SUITE_P(TransformersOnGpu, Goldens,
                         testing::Combine(testing::Values("triton", "fa3", "flashinfer"),
                                          testing::ValuesIn(kCases), testing::Values(1, 64),
                                          testing::ValuesIn(kOnGpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(TransformersDeterministic, Goldens,
                         testing::Combine(testing::Values("cpu"), testing::ValuesIn(kCases),
                                          testing::Values(16), testing::Values(kDeterministic)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(SinksAndChunksOnGpu, Goldens,
                         testing::Combine(testing::Values("triton", "fa3"),
                                          testing::ValuesIn(kSinksAndChunks), testing::Values(1, 64),
                                          testing::ValuesIn(kOnGpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(SinksAndChunksByTrtllmOnGpu, Goldens,
                         testing::Combine(testing::Values("trtllm_mha"), testing::ValuesIn(kSinksAndChunks),
                                          testing::Values(64), testing::ValuesIn(kOnGpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(SinksAndChunksDeterministicOnGpu, Goldens,
                         testing::Combine(testing::Values("fa3"), testing::ValuesIn(kSinksAndChunks),
                                          testing::Values(64), testing::ValuesIn(kDeterministicOnGpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(QuantizedOnGpu, Goldens,
                         testing::Combine(testing::Values("fa3"), testing::ValuesIn(kQuantizedCases),
                                          testing::Values(64), testing::ValuesIn(kOnGpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(QuantizedDeterministicOnGpu, Goldens,
                         testing::Combine(testing::Values("fa3"), testing::ValuesIn(kQuantizedCases),
                                          testing::Values(64), testing::ValuesIn(kDeterministicOnGpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(MlaQuantizedOnGpu, Goldens,
                         testing::Combine(testing::Values("fa3"), testing::Values("deepseek-v3-fp8-blocks"),
                                          testing::Values(64), testing::ValuesIn(kOnGpu)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(TransformersDeterministicOnGpu, Goldens,
                         testing::Combine(testing::Values("fa3"), testing::ValuesIn(kCases),
                                          testing::Values(16), testing::ValuesIn(kDeterministicOnGpu)),
                         name_of);

// A case with one changed field in its config, which must change the logits.
struct ChangedConfig {
  const char* name;
  const char* from;
  const char* to;
};

class ChangedConfigs : public testing::TestWithParam<ChangedConfig> {};

TEST_P(ChangedConfigs, ChangeTheLogits) {
  const auto [name, from, to] = GetParam();
  const std::filesystem::path folder = std::filesystem::path(ATTEND_SOURCE_DIR) / "tests/goldens" / name;
  std::ifstream file(folder / "config.json");
  std::string config(std::istreambuf_iterator<char>(file), {});
  const size_t at = config.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  config.replace(at, std::string(from).size(), to);
  const std::unique_ptr<Model> model = load_model(folder, parse_config(config, "changed"), LoadFormat::kAuto);
  const Golden golden = read_goldens(folder / "golden.safetensors").back();
  const bool is_sparse = make_requirement(model->spec().geometry(DType::kF32, DType::kF32)).indexer;
  GoldenDriver driver(*model, kOnCpu, *find_backend(backend_table(), is_sparse ? "dsa" : "cpu"), 16, 1,
                      golden.length(), golden.length());
  Sequence sequence = driver.begin(golden.prompt());
  const std::vector<Extension> whole{{&sequence, golden.length()}};
  const Tensor logits = driver.step(whole);
  float largest = 0.0f, error = 0.0f;
  for (size_t i = 0; i < logits.span<float>().size(); ++i) {
    largest = std::max(largest, std::abs(golden.logits.span<float>()[i]));
    error = std::max(error, std::abs(logits.span<float>()[i] - golden.logits.span<float>()[i]));
  }
  EXPECT_GT(error, 1e-3f * largest) << "the change is smaller than ten times the tolerance";
}

constexpr ChangedConfig kChangedConfigs[] = {
    {"gpt-oss-sinks-window", "\"swiglu_limit\": 1.25", "\"swiglu_limit\": 1.5"},
    {"gpt-oss-sinks-window", "\"sliding_window\": 16", "\"sliding_window\": 17"},
    {"gpt-oss-sinks-window", "\"truncate\": false", "\"truncate\": true"},
    {"gpt-oss-sinks-window", "\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 4"},
    {"gpt-oss-sinks-window", "\"swiglu_limit\": 1.25", "\"swiglu_alpha\": 1.6, \"swiglu_limit\": 1.25"},
    {"gpt-oss-defaults", "\"sliding_attention\"", "\"full_attention\""},
    {"llama4-chunks", "\"attention_chunk_size\": 16", "\"attention_chunk_size\": 32"},
    {"llama4-chunks", "\"floor_scale\": 8", "\"floor_scale\": 9"},
    {"llama4-chunks", "\"floor_scale\": 8", "\"floor_scale\": 8, \"attn_scale\": 0.12"},
    {"llama4-chunks", "\"floor_scale\": 8", "\"floor_scale\": 8, \"attn_temperature_tuning\": 0"},
    {"llama4-chunks", "\"floor_scale\": 8", "\"floor_scale\": 8, \"use_qk_norm\": false"},
    {"llama4-chunks", "\"floor_scale\": 8", "\"floor_scale\": 8, \"no_rope_layers\": [1, 1, 1, 1]"},
    {"llama4-interleaved", "\"chunked_attention\"", "\"full_attention\""},
    {"llama4-interleaved", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 1"},
    {"llama4-interleaved", "\"use_qk_norm\": false", "\"use_qk_norm\": true"},
    {"granite-multipliers", "\"residual_multiplier\": 0.4", "\"residual_multiplier\": 0.41"},
    {"granite-multipliers", "\"embedding_multiplier\": 3.0", "\"embedding_multiplier\": 3.1"},
    {"granite-multipliers", "\"attention_multiplier\": 0.2", "\"attention_multiplier\": 0.21"},
    {"granite-multipliers", "\"logits_scaling\": 4.0", "\"logits_scaling\": 4.1"},
    {"exaone4-some-layers-rotate", "\"sliding_window_pattern\": 4", "\"sliding_window_pattern\": 3"},
    {"smollm3-some-layers-rotate", "\"no_rope_layer_interval\": 2", "\"no_rope_layer_interval\": 3"},
    {"olmo3-windows-yarn", "\"factor\": 8.0", "\"factor\": 4.0"},
    {"ministral3-temperature", "\"llama_4_scaling_beta\": 0.5", "\"llama_4_scaling_beta\": 0.45"},
    {"minimax-m2-partial", "\"rotary_dim\": 16", "\"rotary_dim\": 8"},
    {"dots1-groups", "\"topk_group\": 2", "\"topk_group\": 4"},
    {"dots1-groups", "\"max_window_layers\": 1", "\"max_window_layers\": 2"},
    {"glm4-moe-norms", "\"routed_scaling_factor\": 2.5", "\"routed_scaling_factor\": 2.4"},
    {"gpt-oss-defaults", "\"layer_types\"", "\"rope_theta\": 10000.0, \"layer_types\""},
    {"gpt-oss-defaults", "\"layer_types\"",
     "\"rope_scaling\": {\"rope_type\": \"default\"}, \"layer_types\""},
    {"deepseek-v32-indexer", "\"index_topk\": 16", "\"index_topk\": 15"},
    {"deepseek-v32-indexer", "\"index_topk\": 16", "\"index_topk\": 1024"},
    {"deepseek-v32-indexer", "\"index_topk\": 16", "\"indexer_rope_interleave\": true, \"index_topk\": 16"},
    {"glm-moe-dsa-shared", "\"index_topk\": 16", "\"indexer_rope_interleave\": false, \"index_topk\": 16"},
    {"glm-moe-dsa-shared", "\"index_topk_freq\": 2", "\"index_topk_pattern\": \"FFFFS\""},
};

INSTANTIATE_TEST_SUITE_P(Every, ChangedConfigs, testing::ValuesIn(kChangedConfigs));
INSTANTIATE_TEST_SUITE_P(MlaOnGpu, Goldens,
                         testing::Combine(testing::Values("triton", "fa3", "flashinfer"),
                                          testing::ValuesIn(kMlaCases), testing::Values(1, 64),
                                          testing::ValuesIn(kOnGpu)),
                         name_of);

}  // namespace
}  // namespace attend
