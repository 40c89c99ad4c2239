// Embedder matches transformers on the tiny embedding models of tests/goldens, and rejects unsupported files
// and inputs.
#include "attend/engine/embedder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <tuple>

#include "attend/checkpoint/hf/safetensors.h"
#include "attend/engine/engine.h"
#include "attend/tensor/cuda.h"
#include "attend/text/tokenizer/tokenizer.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using test::expect_error;
using test::TempDir;
using Tokens = std::vector<int32_t>;

const std::filesystem::path kGoldens = ATTEND_SOURCE_DIR "/tests/goldens";
constexpr const char* kModels[] = {"embed-qwen3-last", "embed-gemma-mean-dense", "embed-qwen3-mean",
                                   "embed-bert-mean",  "embed-bert-cls-tanh",    "embed-roberta-mean"};

struct EmbeddedPrompt {
  Tokens ids;
  std::vector<float> vector;
};

std::vector<EmbeddedPrompt> read_vectors(const std::filesystem::path& folder) {
  const SafetensorsFile file(folder / "golden.safetensors");
  std::vector<EmbeddedPrompt> prompts;
  for (int i = 0; file.find("prompt." + std::to_string(i) + ".input_ids") != nullptr; ++i) {
    const std::string prefix = "prompt." + std::to_string(i);
    const Tensor ids = file.tensor(prefix + ".input_ids"), vector = file.tensor(prefix + ".embedding");
    const auto id_span = ids.span<int32_t>();
    const auto vector_span = vector.span<float>();
    prompts.push_back({{id_span.begin(), id_span.end()}, {vector_span.begin(), vector_span.end()}});
  }
  return prompts;
}

std::vector<Tokens> ids_of(const std::vector<EmbeddedPrompt>& prompts) {
  std::vector<Tokens> ids;
  for (const EmbeddedPrompt& prompt : prompts) ids.push_back(prompt.ids);
  return ids;
}

// Largest difference, relative to the largest expected value.
float error_of(const std::vector<float>& got, const std::vector<float>& expected) {
  EXPECT_EQ(got.size(), expected.size());
  float error = 0.0f, largest = 0.0f;
  for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const float difference = std::abs(got[i] - expected[i]);
    error = difference <= error ? error : difference;  // a NaN compares false; std::max would drop it
  }
  return error / largest;
}

float worst_error(Embedder& embedder, const std::vector<EmbeddedPrompt>& prompts) {
  const auto vectors = embedder.embed(ids_of(prompts));
  float worst = 0.0f;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const float error = error_of(vectors[i], prompts[i].vector);
    worst = error <= worst ? worst : error;
  }
  return worst;
}

// Copies a model's folder and replaces one file.
void copy_model(const std::filesystem::path& from, const TempDir& to, const std::string& name,
                const std::string& text) {
  std::filesystem::copy(
      from, to.path(),
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  std::ofstream(to.path() / name) << text;
}

class EmbeddingGoldens : public testing::TestWithParam<std::tuple<const char*, const char*, int>> {};

TEST_P(EmbeddingGoldens, BatchedAndSingleInputsMatchTransformers) {
  const auto [name, backend, page_size] = GetParam();
  const auto prompts = read_vectors(kGoldens / name);
  ASSERT_GE(prompts.size(), 4u);
  Embedder embedder({.model_path = kGoldens / name,
                     .backend_options = {.attention_backend = backend, .page_size = page_size}});
  EXPECT_LE(worst_error(embedder, prompts), 1e-4f);
  for (const EmbeddedPrompt& prompt : prompts) EXPECT_LE(worst_error(embedder, {prompt}), 1e-4f);
}

INSTANTIATE_TEST_SUITE_P(Every, EmbeddingGoldens,
                         testing::Combine(testing::ValuesIn(kModels),
                                          testing::Values("torch_native", "cpu", "triton", "flashinfer"),
                                          testing::Values(1, 16, 64)),
                         [](const auto& test) {
                           std::string name = std::string(std::get<0>(test.param)) + "_" +
                                              std::get<1>(test.param) + "_page" +
                                              std::to_string(std::get<2>(test.param));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

class EmbeddingGoldensOnGpu : public testing::TestWithParam<std::tuple<const char*, DType>> {};

TEST_P(EmbeddingGoldensOnGpu, BatchedAndSingleInputsMatchTransformers) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "this machine has no GPU that this build can use";
  const auto [name, dtype] = GetParam();
  const auto prompts = read_vectors(kGoldens / name);
  Embedder embedder({.model_path = kGoldens / name, .device = {DeviceType::kCuda, 0}, .dtype = dtype});
  const float tolerance = dtype == DType::kF32 ? 1e-4f : dtype == DType::kF16 ? 1e-2f : 6e-2f;
  EXPECT_LE(worst_error(embedder, prompts), tolerance);
  for (const EmbeddedPrompt& prompt : prompts) EXPECT_LE(worst_error(embedder, {prompt}), tolerance);
}

INSTANTIATE_TEST_SUITE_P(Every, EmbeddingGoldensOnGpu,
                         testing::Combine(testing::ValuesIn(kModels),
                                          testing::Values(DType::kF32, DType::kF16, DType::kBF16)),
                         [](const auto& test) {
                           std::string name = std::string(std::get<0>(test.param)) + "_" +
                                              std::string(to_string(std::get<1>(test.param)));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(Embedder, ReadsSentenceTransformersConfigs) {
  const Embedder gemma({.model_path = kGoldens / "embed-gemma-mean-dense"});
  EXPECT_EQ(gemma.info().model, "Gemma3TextModel");
  EXPECT_EQ(gemma.info().pooling, Pooling::kMean);
  EXPECT_EQ(gemma.info().dimensions, 24) << "of the second dense layer";
  EXPECT_EQ(gemma.info().max_input_tokens, 160) << "of sentence_bert_config.json";
  EXPECT_TRUE(gemma.info().normalize && gemma.info().bidirectional);
  const Embedder qwen({.model_path = kGoldens / "embed-qwen3-last"});
  EXPECT_EQ(qwen.info().pooling, Pooling::kLast);
  EXPECT_FALSE(qwen.info().bidirectional);
  EXPECT_FALSE(Embedder({.model_path = kGoldens / "embed-qwen3-mean"}).info().normalize);
  const Embedder bert({.model_path = kGoldens / "embed-bert-cls-tanh"});
  EXPECT_EQ(bert.info().pooling, Pooling::kCls);
  EXPECT_TRUE(bert.info().bidirectional);
}

TEST(Embedder, UsesTheTokenizersMaxLengthByDefault) {
  const std::filesystem::path model = kGoldens / "embed-bert-mean";
  const auto longest = [&](const std::string& model_max_length) {
    const TempDir dir;
    copy_model(model, dir, "tokenizer_config.json", "{\"model_max_length\": " + model_max_length + "}");
    std::filesystem::remove(dir.path() / "sentence_bert_config.json");
    return Embedder({.model_path = dir.path()}).info().max_input_tokens;
  };
  EXPECT_EQ(longest("77"), 77);
  EXPECT_EQ(longest("1000000000000000019884624838656"), 192)
      << "without a limit, the model's number of positions";
}

TEST(Embedder, TruncatesTextsBetweenSpecialTokens) {
  const TempDir dir;
  std::ifstream file(ATTEND_SOURCE_DIR "/tests/data/tokenizers/bert/tokenizer.json");
  copy_model(kGoldens / "embed-bert-mean", dir, "tokenizer.json",
             std::string(std::istreambuf_iterator(file), {}));
  const Embedder embedder({.model_path = dir.path(), .max_input_tokens = 7});
  const std::string text = "the engine reads a prompt and writes the next token";
  const Tokens all = Tokenizer::from_path(dir.path()).encode(text);
  const auto cut = embedder.encode_truncated(text);
  ASSERT_EQ(cut.ids.size(), 7u);
  EXPECT_TRUE(cut.is_truncated);
  EXPECT_TRUE(std::equal(cut.ids.begin(), cut.ids.end() - 1, all.begin()));
  EXPECT_EQ(cut.ids.back(), all.back()) << "[SEP]";
  EXPECT_FALSE(embedder.encode_truncated("the").is_truncated);
  expect_error(ErrorCode::kInvalidArgument, {"at most 7"}, [&] { embedder.encode(text); });
}

TEST(Embedder, UsesLastTokenPoolingForCausalModels) {
  const Embedder embedder({.model_path = kGoldens / "llama-gqa4-hd32"});
  EXPECT_EQ(embedder.info().pooling, Pooling::kLast);
  EXPECT_TRUE(embedder.info().normalize);
}

TEST(Embedder, PoolsAsConfigured) {
  const std::filesystem::path model = kGoldens / "embed-qwen3-mean";
  const Tokens ids = read_vectors(model)[1].ids;
  const auto make_vector = [&](Pooling pooling, std::span<const int32_t> part) {
    Embedder embedder({.model_path = model, .pooling = pooling});
    const std::vector<Tokens> inputs = {Tokens(part.begin(), part.end())};
    return embedder.embed(inputs)[0];
  };
  // The first token of a causal model does not attend to later tokens.
  EXPECT_LE(error_of(make_vector(Pooling::kCls, ids), make_vector(Pooling::kLast, std::span(ids).first(1))),
            1e-5f);
  EXPECT_GT(error_of(make_vector(Pooling::kLast, ids), make_vector(Pooling::kMean, ids)), 1e-2f);
  Embedder of_length_one({.model_path = model, .normalize = true});
  const std::vector<Tokens> inputs = {ids};
  double squares = 0.0;
  const auto vectors = of_length_one.embed(inputs);
  for (const float x : vectors[0]) squares += double{x} * double{x};
  EXPECT_NEAR(squares, 1.0, 1e-5);
}

TEST(Embedder, ChangedConfigChangesVectors) {
  const std::filesystem::path model = kGoldens / "embed-gemma-mean-dense";
  std::ifstream file(model / "config.json");
  const std::string config(std::istreambuf_iterator<char>(file), {});
  for (const auto& [from, to] : {std::pair{"\"sliding_window\": 16", "\"sliding_window\": 18"},
                                 {"\"rope_local_base_freq\": 1000.0", "\"rope_local_base_freq\": 900.0"}}) {
    std::string changed = config;
    ASSERT_NE(changed.find(from), std::string::npos);
    changed.replace(changed.find(from), std::string(from).size(), to);
    const TempDir dir;
    copy_model(model, dir, "config.json", changed);
    Embedder embedder({.model_path = dir.path()});
    EXPECT_GT(worst_error(embedder, read_vectors(model)), 1e-3f) << to;
  }
}

TEST(Embedder, SplitsInputsOverSteps) {
  const auto prompts = read_vectors(kGoldens / "embed-qwen3-last");
  Embedder embedder({.model_path = kGoldens / "embed-qwen3-last", .max_input_tokens = 130});
  std::vector<EmbeddedPrompt> many;
  for (int i = 0; i < 90; ++i) many.insert(many.end(), prompts.begin(), prompts.end());
  EXPECT_LE(worst_error(embedder, many), 1e-4f);
}

TEST(Embedder, RejectsInvalidInputsAndServesTheNext) {
  const auto prompts = read_vectors(kGoldens / "embed-qwen3-last");
  Embedder embedder({.model_path = kGoldens / "embed-qwen3-last", .max_input_tokens = 40});
  const auto expect_rejected = [&](const std::vector<Tokens>& inputs,
                                   std::initializer_list<std::string_view> parts) {
    expect_error(ErrorCode::kInvalidArgument, parts, [&] { embedder.embed(inputs); });
  };
  expect_rejected({{3}, {}}, {"input 1", "empty"});
  expect_rejected({Tokens(41, 5)}, {"input 0 of 41 tokens", "at most 40"});
  expect_rejected({{128}}, {"input 0", "token id 128", "0 to 127"});
  expect_rejected({{-1}}, {"token id -1"});
  expect_error(ErrorCode::kUnsupported, {"no tokenizer.json"}, [&] { embedder.encode("text"); });
  EXPECT_LE(worst_error(embedder, {prompts[2]}), 1e-4f);
}

TEST(Embedder, RejectsUnsupportedFiles) {
  const std::filesystem::path model = kGoldens / "embed-gemma-mean-dense";
  const auto expect_rejected = [&](ErrorCode code, const std::string& name, const std::string& text,
                                   std::initializer_list<std::string_view> parts) {
    SCOPED_TRACE(name + ": " + text);
    const TempDir dir;
    copy_model(model, dir, name, text);
    expect_error(code, parts, [&] { Embedder({.model_path = dir.path()}); });
  };
  expect_rejected(ErrorCode::kUnsupported, "1_Pooling/config.json", R"({"pooling_mode_max_tokens": true})",
                  {"pooling_mode_max_tokens", "pooling_mode_mean_tokens"});
  expect_rejected(ErrorCode::kUnsupported, "1_Pooling/config.json",
                  R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})",
                  {"expected one pooling mode"});
  expect_rejected(ErrorCode::kCorruptFile, "1_Pooling/config.json", "{}", {"pooling_mode"});
  expect_rejected(ErrorCode::kUnsupported, "sentence_bert_config.json", R"({"do_lower_case": true})",
                  {"do_lower_case", "the tokenizer"});
  expect_rejected(ErrorCode::kUnsupported, "modules.json", R"([{"path": "", "type": "x.LSTM"}])",
                  {"x.LSTM", "Transformer, Pooling, Dense, Normalize"});
  expect_rejected(ErrorCode::kCorruptFile, "modules.json", R"([{"path": "../up", "type": "x.Dense"}])",
                  {"../up"});
  expect_rejected(ErrorCode::kCorruptFile, "2_Dense/config.json",
                  R"({"in_features": 47, "out_features": 80})", {"in_features 47", "expected 48"});
  expect_rejected(ErrorCode::kUnsupported, "2_Dense/config.json",
                  R"({"in_features": 48, "out_features": 80, "activation_function": "torch.nn.ReLU"})",
                  {"torch.nn.ReLU", "Tanh and Identity"});
  expect_rejected(ErrorCode::kCorruptFile, "2_Dense/config.json",
                  R"({"in_features": 48, "out_features": 81, "bias": false,
              "activation_function": "torch.nn.modules.linear.Identity"})",
                  {"in_features 80", "expected 81"});
  expect_error(ErrorCode::kInvalidArgument, {"max_input_tokens 257", "1 to 256"},
               [&] { Embedder({.model_path = model, .max_input_tokens = 257}); });
  expect_error(ErrorCode::kInvalidArgument, {"pooling \"max\"", "mean, cls or last"},
               [] { parse_pooling("max"); });
}

TEST(Embedder, RejectsEncodersThatItDoesNotSupport) {
  std::ifstream file(kGoldens / "embed-bert-mean/config.json");
  const std::string config(std::istreambuf_iterator<char>(file), {});
  const auto expect_rejected = [&](const std::string& from, const std::string& to,
                                   std::initializer_list<std::string_view> parts) {
    std::string changed = config;
    ASSERT_NE(changed.find(from), std::string::npos);
    changed.replace(changed.find(from), from.size(), to);
    const TempDir dir;
    copy_model(kGoldens / "embed-bert-mean", dir, "config.json", changed);
    expect_error(ErrorCode::kUnsupported, parts, [&] { Embedder({.model_path = dir.path()}); });
  };
  expect_rejected("\"hidden_act\": \"gelu\"", "\"hidden_act\": \"mish\"",
                  {"hidden_act \"mish\"", "gelu_new"});
  expect_rejected("\"pad_token_id\": 0", "\"position_embedding_type\": \"relative_key\"",
                  {"relative_key", "absolute"});
  expect_rejected("\"pad_token_id\": 0", "\"is_decoder\": true", {"is_decoder", "encoders"});
  expect_rejected("BertModel", "MPNetModel", {"MPNetModel", "RobertaModel"});
}

TEST(Engine, RejectsGenerationWithABidirectionalModel) {
  EngineConfig config;
  config.model_path = kGoldens / "embed-gemma-mean-dense";
  expect_error(ErrorCode::kUnsupported, {"Gemma3TextModel", "both directions", "attend embed"},
               [&] { Engine{config}; });
}

// Configuration of an embedder's engine.
EngineConfig pooling_config(const char* model) {
  EngineConfig config;
  config.model_path = kGoldens / model;
  config.kv_cache_dtype = DType::kF32;
  config.pooling = PoolingSpec{};
  return config;
}

TEST(PoolingRequest, ReturnsOneOutputPerInput) {
  const auto prompts = read_vectors(kGoldens / "embed-bert-mean");
  Engine engine(pooling_config("embed-bert-mean"));
  PoolingRequest request;
  for (const EmbeddedPrompt& prompt : prompts) request.inputs.emplace_back(prompt.ids);
  const RequestId id = engine.submit(request);
  std::vector<int> indices;
  while (engine.step([&](const RequestOutput& output) {
    EXPECT_EQ(output.id, id);
    EXPECT_EQ(output.finish_reason, FinishReason::kStop);
    EXPECT_TRUE(output.token_ids.empty());
    indices.push_back(output.index);
    const auto& expected = prompts[static_cast<size_t>(output.index)].vector;
    EXPECT_LE(error_of({output.vector.begin(), output.vector.end()}, expected), 1e-4f);
  })) {
  }
  EXPECT_EQ(indices.size(), prompts.size());
  EXPECT_EQ(engine.stats().num_steps, 1);
  EXPECT_EQ(engine.num_used_slots(), 0);
  engine.check_memory();
}

TEST(PoolingRequest, ComputesEachInputWithinOneStep) {
  const auto prompts = read_vectors(kGoldens / "embed-bert-mean");
  EngineConfig config = pooling_config("embed-bert-mean");
  config.chunked_prefill_size = 100;
  config.max_running_requests = 4;
  Engine engine(config);
  PoolingRequest request;
  for (int i = 0; i < 4; ++i)
    for (const EmbeddedPrompt& prompt : prompts)
      if (prompt.ids.size() <= 100) request.inputs.emplace_back(prompt.ids);
  const auto num_inputs = static_cast<int64_t>(request.inputs.size());
  const std::vector inputs = request.inputs;
  engine.submit(std::move(request));
  int64_t num_outputs = 0;
  while (engine.step([&](const RequestOutput& output) {
    ++num_outputs;
    const auto& ids = std::get<Tokens>(inputs[static_cast<size_t>(output.index)]);
    const auto prompt = std::ranges::find(prompts, ids, &EmbeddedPrompt::ids);
    EXPECT_LE(error_of({output.vector.begin(), output.vector.end()}, prompt->vector), 1e-4f);
  })) {
  }
  EXPECT_EQ(num_outputs, num_inputs);
  EXPECT_GT(engine.stats().num_steps, 1);
  expect_error(ErrorCode::kInvalidArgument, {"input 0 of 101 tokens", "at most 100"}, [&] {
    PoolingRequest longer;
    longer.inputs.emplace_back(Tokens(101, 1));
    engine.submit(longer);
  });
}

TEST(PoolingRequest, EndsWhenItIsAborted) {
  Engine engine(pooling_config("embed-bert-mean"));
  PoolingRequest request;
  request.inputs.assign(3, Tokens(5, 1));
  int num_aborted = 0;
  engine.abort(engine.submit(request), [&](const RequestOutput& output) {
    EXPECT_EQ(output.finish_reason, FinishReason::kAbort);
    num_aborted += output.vector.empty() ? 1 : 0;
  });
  EXPECT_EQ(num_aborted, 3);
  EXPECT_FALSE(engine.step([](const RequestOutput&) {}));
}

TEST(PoolingRequest, IsRejectedByAGeneratingEngineAndPromptsByAPoolingEngine) {
  EngineConfig config;
  config.model_path = kGoldens / "llama-gqa4-hd32";
  Engine generates(config);
  PoolingRequest request;
  request.inputs.emplace_back(Tokens(5, 1));
  expect_error(ErrorCode::kUnsupported, {"generates text"}, [&] { generates.submit(request); });
  Engine pools(pooling_config("embed-bert-mean"));
  expect_error(ErrorCode::kUnsupported, {"vectors"}, [&] { pools.submit(Tokens(5, 1), SamplingParams()); });
  expect_error(ErrorCode::kInvalidArgument, {"inputs: none"}, [&] { pools.submit(PoolingRequest()); });
}

}  // namespace
}  // namespace attend
