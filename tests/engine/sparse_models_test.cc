// Engines with sparse attention over selected keys: batches, chunked prefill, preemption, cached prefixes,
// drafts, deterministic mode, and unsupported options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "attend/checkpoint/hf/safetensors.h"
#include "attend/engine/engine.h"
#include "tests/support/error_message.h"

namespace attend {
namespace {

using testing::HasSubstr;
using testing_support::error_message;
using Tokens = std::vector<int32_t>;

const std::filesystem::path kGoldens = ATTEND_SOURCE_DIR "/tests/goldens";
constexpr const char* kModels[] = {"deepseek-v32-indexer", "glm-moe-dsa-shared"};

struct SparsePrompt {
  Tokens ids, greedy;
};

std::vector<SparsePrompt> read_prompts(const char* model, int num_prompts = 5) {
  const SafetensorsFile goldens(kGoldens / model / "golden.safetensors");
  const auto read = [&](const std::string& name) {
    const Tensor tensor = goldens.tensor(name);
    const View<int32_t> values = tensor.span<int32_t>();
    return Tokens{values.begin(), values.end()};
  };
  std::vector<SparsePrompt> prompts;
  for (int i = 0; i < num_prompts; ++i) {
    const std::string prompt = "prompt." + std::to_string(i);
    prompts.push_back({read(prompt + ".input_ids"), read(prompt + ".greedy")});
  }
  return prompts;
}

EngineConfig sparse_config(const char* model) {
  EngineConfig config;
  config.model_path = kGoldens / model;
  config.kv_cache_dtype = DType::kF32;  // dtype of the goldens
  config.max_total_tokens = 1024;
  config.context_length = 256;
  return config;
}

// Submits all prompts at once. Returns the answers in the order of the prompts.
std::vector<Tokens> collect_answers(Engine& engine, const std::vector<SparsePrompt>& prompts) {
  std::vector<RequestId> ids;
  for (const SparsePrompt& prompt : prompts)
    ids.push_back(engine.submit(
        prompt.ids, {.max_new_tokens = static_cast<int>(prompt.greedy.size()), .ignore_eos = true}));
  std::vector<Tokens> answers(prompts.size());
  while (engine.step([&](const RequestOutput& output) {
    Tokens& answer = answers[static_cast<size_t>(std::ranges::find(ids, output.id) - ids.begin())];
    answer.insert(answer.end(), output.token_ids.begin(), output.token_ids.end());
  }))
    engine.check_memory();
  return answers;
}

std::vector<Tokens> expected_answers(const std::vector<SparsePrompt>& prompts) {
  std::vector<Tokens> expected;
  for (const SparsePrompt& prompt : prompts) expected.push_back(prompt.greedy);
  return expected;
}

class SparseModel : public testing::TestWithParam<const char*> {
 protected:
  const std::vector<SparsePrompt> prompts_ = read_prompts(GetParam());
};

TEST_P(SparseModel, UsesDsaAndMatchesTransformersInABatch) {
  Engine engine(sparse_config(GetParam()));
  EXPECT_EQ(engine.info().target().resolution.prefill->name, "dsa");
  EXPECT_EQ(engine.info().target().resolution.decode->name, "dsa");
  EXPECT_EQ(collect_answers(engine, prompts_), expected_answers(prompts_));
}

TEST_P(SparseModel, MatchesTransformersInChunks) {
  for (const int chunk : {5, 16, 40}) {
    EngineConfig config = sparse_config(GetParam());
    config.chunked_prefill_size = chunk;
    Engine engine(config);
    EXPECT_EQ(collect_answers(engine, prompts_), expected_answers(prompts_)) << "chunks of " << chunk;
  }
}

TEST_P(SparseModel, MatchesTransformersAfterPreemption) {
  EngineConfig config = sparse_config(GetParam());
  config.schedule.conservativeness = 0.0;  // reserves nothing for the answers of running requests
  config.backend_options.page_size = 1;
  config.max_total_tokens = 24;
  for (const SparsePrompt& prompt : prompts_) config.max_total_tokens += static_cast<int>(prompt.ids.size());
  Engine engine(config);
  EXPECT_EQ(collect_answers(engine, prompts_), expected_answers(prompts_));
  EXPECT_GT(engine.num_preemptions(), 0);
}

// Index keys belong to the same pages as latent rows.
TEST_P(SparseModel, MatchesTransformersFromCachedPrefixes) {
  EngineConfig config = sparse_config(GetParam());
  config.backend_options.page_size = 4;
  Engine engine(config);
  const std::vector<SparsePrompt> longest{prompts_.back()};
  EXPECT_EQ(collect_answers(engine, longest), expected_answers(longest));
  int num_cached = 0;
  engine.submit(longest[0].ids, {.max_new_tokens = 16, .ignore_eos = true});
  Tokens again;
  while (engine.step([&](const RequestOutput& output) {
    num_cached = output.request.num_cached_tokens;
    again.insert(again.end(), output.token_ids.begin(), output.token_ids.end());
  })) {
  }
  EXPECT_EQ(num_cached, (static_cast<int>(longest[0].ids.size()) - 1) / 4 * 4);
  EXPECT_EQ(again, longest[0].greedy);
}

TEST_P(SparseModel, IsBatchInvariantInDeterministicMode) {
  EngineConfig config = sparse_config(GetParam());
  config.deterministic_inference = true;
  Engine whole(config);
  const std::vector<Tokens> answers = collect_answers(whole, prompts_);
  EXPECT_EQ(answers, expected_answers(prompts_));
  config.chunked_prefill_size = 24;
  config.schedule.conservativeness = 0.0;
  config.backend_options.page_size = 1;
  config.max_total_tokens = 24;
  for (const SparsePrompt& prompt : prompts_) config.max_total_tokens += static_cast<int>(prompt.ids.size());
  Engine narrow(config);
  EXPECT_EQ(collect_answers(narrow, prompts_), answers);
}

TEST_P(SparseModel, VerifiesChainsOfDrafts) {
  EngineConfig config = sparse_config(GetParam());
  config.speculation.algorithm = SpeculativeAlgorithm::kNgram;
  Engine engine(config);
  EXPECT_EQ(collect_answers(engine, prompts_), expected_answers(prompts_));
}

TEST_P(SparseModel, KeepsIndexKeysIn16BitsNextToFp8Rows) {
  EngineConfig config = sparse_config(GetParam());
  config.kv_cache_dtype = DType::kF8E4M3;
  Engine engine(config);
  const bool shares = std::string_view(GetParam()) == "glm-moe-dsa-shared";
  const size_t num_layers = shares ? 5 : 2, num_indexers = shares ? 3 : 2;
  EXPECT_EQ(engine.info().target().kv_token_bytes, num_layers * (64 + 16) + num_indexers * 32 * 2);
  const std::vector<Tokens> cold = collect_answers(engine, prompts_);
  EXPECT_EQ(collect_answers(engine, prompts_), cold) << "from cached prefixes";
}

INSTANTIATE_TEST_SUITE_P(Every, SparseModel, testing::ValuesIn(kModels), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(SparseModels, AreRejectedByBackendsThatAttendToAllKeys) {
  for (const char* backend : {"cpu", "triton", "torch_native"}) {
    EngineConfig config = sparse_config("deepseek-v32-indexer");
    config.backend_options.attention_backend = backend;
    EXPECT_THAT(error_message(ErrorCode::kUnsupported, [&] { Engine engine(config); }),
                HasSubstr("keys selected by an indexer: " + std::string(backend) + " attends to all keys"));
  }
}

TEST(SparseModels, AreTheOnlyOnesOfDsa) {
  EngineConfig config = sparse_config("deepseek-v3");
  config.backend_options.attention_backend = "nsa";
  EXPECT_THAT(error_message(ErrorCode::kUnsupported, [&] { Engine engine(config); }),
              HasSubstr("attention to all keys: dsa serves only models with an indexer"));
}

// Dual chunk attention, which attend computes as plain attention up to chunk_size tokens.
TEST(DualChunkModels, HaveAContextOfOneChunk) {
  const std::filesystem::path model = kGoldens / "qwen2-gqa7-hd64";
  std::ifstream file(model / "config.json");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::string field =
      R"("dual_chunk_attention_config": {"chunk_size": 200, "local_size": 16, "original_max_position_embeddings": 200}, )";
  text.insert(text.find('{') + 1, field);
  EngineConfig config;
  config.model_path = model;
  config.model = parse_config(text, "config.json");
  const std::vector<SparsePrompt> prompts = read_prompts("qwen2-gqa7-hd64", 4);
  testing::internal::CaptureStderr();
  Engine engine(config);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("context of 200 of 256 tokens: up to this length dual chunk attention"));
  EXPECT_EQ(engine.info().context_length, 200);
  EXPECT_EQ(collect_answers(engine, prompts), expected_answers(prompts));
  config.context_length = 201;
  EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { Engine rejected(config); }),
            "context_length 201: 2 to 200, up to which dual chunk attention equals plain attention");
}

}  // namespace
}  // namespace attend
