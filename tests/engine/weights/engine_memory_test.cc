// Engines whose weights are replaced and whose memory is released between steps.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "attend/engine/engine.h"
#include "tests/support/model_copy.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using test::expect_error;
using test::ModelCopy;
using test::TempDir;
using Tokens = std::vector<int32_t>;
namespace fs = std::filesystem;

const fs::path kGoldens = fs::path(ATTEND_SOURCE_DIR) / "tests/goldens";
const MemoryParts kAll{.weights = true, .kv_cache = true};

EngineConfig make_config(const fs::path& model) {
  EngineConfig config;
  config.model_path = model;
  config.context_length = 256;
  config.max_running_requests = 4;
  config.max_total_tokens = 1024;
  config.backend_options.page_size = 4;
  config.dtype = config.kv_cache_dtype = DType::kF32;
  return config;
}

Tokens make_prompt(int length, int32_t first = 5) {
  Tokens prompt;
  for (int i = 0; i < length; ++i) prompt.push_back(2 + (first + 7 * i) % 100);
  return prompt;
}

void halve_rows(test::TestTensor& tensor) {
  tensor.shape[0] /= 2;
  tensor.data.resize(tensor.data.size() / 2);
}

struct Answer {
  Tokens tokens;
  int num_cached = 0;
};

Answer run(Engine& engine, const Tokens& prompt = make_prompt(23), const std::string& adapter = "",
           int max_new_tokens = 12) {
  Answer answer;
  engine.submit({.prompt = prompt,
                 .params = {.max_new_tokens = max_new_tokens, .ignore_eos = true},
                 .adapter = adapter});
  while (engine.step([&](const RequestOutput& output) {
    EXPECT_NE(output.finish_reason, FinishReason::kError) << output.message;
    answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
    answer.num_cached = output.request.num_cached_tokens;
  })) {
  }
  engine.check_memory();
  return answer;
}

Tokens answer_of(EngineConfig config, const fs::path& model, const std::string& adapter = "") {
  config.model_path = model;
  Engine engine(config);
  return run(engine, make_prompt(23), adapter).tokens;
}

struct UpdatedModel {
  const char* name;
  int tp_size = 1;
  bool drafts = false;

  friend void PrintTo(const UpdatedModel& model, std::ostream* out) {
    *out << model.name << (model.drafts ? " with drafts" : "") << ", ranks: " << model.tp_size;
  }
};

class ChangedWeights : public testing::TestWithParam<UpdatedModel> {
 protected:
  static EngineConfig config() {
    EngineConfig config = make_config(kGoldens / GetParam().name);
    config.tp_size = GetParam().tp_size;
    if (GetParam().drafts)
      config.speculation = {
          .algorithm = SpeculativeAlgorithm::kNextn, .num_steps = 3, .disable_by_batch_size = 16};
    return config;
  }
};

TEST_P(ChangedWeights, GiveTheAnswersOfTheNewModel) {
  ModelCopy other(config().model_path);
  other.rotate_embedding();
  const Tokens old_answer = answer_of(config(), config().model_path),
               new_answer = answer_of(config(), other.path());
  ASSERT_NE(old_answer, new_answer);
  Engine engine(config());
  EXPECT_EQ(run(engine).tokens, old_answer);
  EXPECT_GT(run(engine).num_cached, 0);
  for (int repeat = 0; repeat < 2; ++repeat) {
    engine.update_weights(other.path());
    const Answer updated = run(engine);
    EXPECT_EQ(updated.tokens, new_answer);
    EXPECT_EQ(updated.num_cached, 0) << "K/V of the old weights";
    EXPECT_EQ(run(engine).tokens, new_answer) << "with cached K/V";
    engine.update_weights(config().model_path);
    EXPECT_EQ(run(engine).tokens, old_answer);
  }
  EXPECT_GT(engine.stats().num_steps, 0);
}

TEST_P(ChangedWeights, AreReadAgainAfterTheirMemoryWasReleased) {
  ModelCopy other(config().model_path);
  other.rotate_embedding();
  const Tokens old_answer = answer_of(config(), config().model_path),
               new_answer = answer_of(config(), other.path());
  Engine engine(config());
  for (const MemoryParts parts : {kAll, MemoryParts{.weights = true}, MemoryParts{.kv_cache = true}}) {
    EXPECT_EQ(run(engine).tokens, old_answer);
    engine.release_memory(parts);
    EXPECT_EQ(engine.released_memory(), parts);
    engine.allocate_memory(kAll);
    EXPECT_EQ(engine.released_memory(), MemoryParts());
    const Answer again = run(engine);
    EXPECT_EQ(again.tokens, old_answer);
    EXPECT_EQ(again.num_cached > 0, !parts.kv_cache);
  }
  // One part after the other, in both orders.
  for (const MemoryParts first : {MemoryParts{.weights = true}, MemoryParts{.kv_cache = true}}) {
    engine.release_memory(first);
    engine.release_memory(kAll - first);
    engine.update_weights(other.path());
    EXPECT_EQ(engine.released_memory(), kAll) << "an update allocates nothing that was released";
    engine.allocate_memory(first);
    engine.allocate_memory(kAll);
    EXPECT_EQ(run(engine).tokens, new_answer);
    engine.update_weights(config().model_path);
    EXPECT_EQ(run(engine).tokens, old_answer);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ChangedWeights,
                         testing::Values(UpdatedModel{"llama-gqa4-hd32"},
                                         UpdatedModel{"llama-gqa4-hd32", /*tp_size=*/2},
                                         UpdatedModel{"llama-mha-hd64-tied"}, UpdatedModel{"llama-gptq-v2"},
                                         UpdatedModel{"qwen3-5-moe-fused"}, UpdatedModel{"deepseek-v3"},
                                         UpdatedModel{"draft-deepseek-v3", 1, /*drafts=*/true}));

// Requests of a paused engine, in the middle of their prompts and answers.
class UnfinishedRequests : public testing::Test {
 protected:
  UnfinishedRequests() {
    other_.rotate_embedding();
    for (const int length : {9, 40, 100}) {
      prompts_.push_back(make_prompt(length, length));
      engine_.submit(
          {.prompt = prompts_.back(), .params = {.max_new_tokens = kNumTokens, .ignore_eos = true}});
    }
    answers_.resize(prompts_.size());
    for (int step = 0; step < 4; ++step) step_once();
  }

  bool step_once() {
    return engine_.step([&](const RequestOutput& output) {
      EXPECT_NE(output.finish_reason, FinishReason::kError) << output.message;
      Tokens& answer = answers_[static_cast<size_t>(output.id - 1)];
      answer.insert(answer.end(), output.token_ids.begin(), output.token_ids.end());
      if (output.finished()) finished_.push_back(output.request.num_preemptions);
    });
  }
  void finish() {
    while (step_once()) {
    }
    engine_.check_memory();
    EXPECT_EQ(finished_.size(), prompts_.size());
  }
  // Expects each request to end as an engine with this model continues its prompt and first tokens.
  void expect_continued(const fs::path& model, const std::vector<Tokens>& before) {
    Engine engine(make_config(model));
    for (size_t i = 0; i < prompts_.size(); ++i) {
      Tokens known = prompts_[i];
      known.insert(known.end(), before[i].begin(), before[i].end());
      const auto num_left = kNumTokens - static_cast<int>(before[i].size());
      const Tokens rest = run(engine, known, "", num_left).tokens;
      ASSERT_EQ(answers_[i].size(), static_cast<size_t>(kNumTokens));
      EXPECT_EQ(Tokens(answers_[i].begin() + std::ssize(before[i]), answers_[i].end()), rest) << i;
    }
  }

  static constexpr int kNumTokens = 14;
  static EngineConfig config() {
    EngineConfig config = make_config(kGoldens / "llama-gqa4-hd32");
    config.chunked_prefill_size = 32;  // the longest prompt needs several steps
    return config;
  }
  ModelCopy other_{config().model_path};
  Engine engine_{config()};
  std::vector<Tokens> prompts_, answers_;
  std::vector<int> finished_;  // preemptions of each finished request
};

TEST_F(UnfinishedRequests, ContinueAfterTheirMemoryWasReleased) {
  engine_.finish_in_flight([](const RequestOutput&) {});
  const std::vector<Tokens> before = answers_;
  engine_.release_memory(kAll);
  expect_error(ErrorCode::kInternal, {"released memory"}, [&] { step_once(); });
  engine_.allocate_memory(kAll);
  finish();
  expect_continued(config().model_path, std::vector<Tokens>(3));
}

TEST_F(UnfinishedRequests, ContinueWithNewWeightsAndNewKeys) {
  const std::vector<Tokens> before = answers_;
  EXPECT_FALSE(before[0].empty());
  engine_.update_weights(other_.path());
  finish();
  expect_continued(other_.path(), before);
}

TEST_F(UnfinishedRequests, ContinueAfterAPreemption) {
  engine_.preempt_all();
  engine_.check_memory();
  EXPECT_EQ(engine_.num_running(), 0);
  EXPECT_EQ(engine_.num_waiting(), 3);
  finish();
  for (const int num_preemptions : finished_) EXPECT_GT(num_preemptions, 0);
  expect_continued(config().model_path, std::vector<Tokens>(3));
}

TEST_F(UnfinishedRequests, KeepTheirKeysWithoutAFlush) {
  engine_.update_weights(other_.path(), /*flush_cache=*/false);
  EXPECT_EQ(engine_.num_preemptions(), 0);
  finish();
  for (const int num_preemptions : finished_) EXPECT_EQ(num_preemptions, 0);
  EXPECT_GT(run(engine_, prompts_[2]).num_cached, 0) << "the caller keeps K/V of the old weights";
}

TEST_F(UnfinishedRequests, SurviveAnUpdateThatFails) {
  ModelCopy broken(config().model_path);
  halve_rows(broken.tensor("1.mlp.up_proj.weight"));
  broken.write();
  expect_error(ErrorCode::kCorruptFile, {"1.mlp.up_proj.weight"},
               [&] { engine_.update_weights(broken.path()); });
  EXPECT_EQ(engine_.num_preemptions(), 0);
  finish();
  expect_continued(config().model_path, std::vector<Tokens>(3));
}

// Each change of a copy's files, and the error that it causes.
struct BrokenFiles {
  std::string name;
  ErrorCode code;
  std::vector<std::string> parts;  // of the message
  std::function<void(ModelCopy&)> damage;

  friend void PrintTo(const BrokenFiles& files, std::ostream* out) { *out << files.name; }
};

class RefusedWeights : public testing::TestWithParam<BrokenFiles> {};

TEST_P(RefusedWeights, LeaveTheOldOnesInUse) {
  const EngineConfig config = make_config(kGoldens / "llama-gqa4-hd32");
  const Tokens expected = answer_of(config, config.model_path);
  ModelCopy broken(config.model_path);
  GetParam().damage(broken);
  Engine engine(config);
  for (const MemoryParts released : {MemoryParts(), kAll}) {
    engine.release_memory(released);
    if (released.weights && GetParam().name == "InfiniteValue") continue;  // read when they are needed
    try {
      engine.update_weights(broken.path());
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), to_string(GetParam().code)) << error.what();
      for (const std::string& part : GetParam().parts) EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
    EXPECT_EQ(engine.weights_path(), config.model_path);
    engine.allocate_memory(released);
    EXPECT_EQ(run(engine).tokens, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, RefusedWeights,
    testing::Values(
        BrokenFiles{"OtherShape",
                    ErrorCode::kCorruptFile,
                    {"model.layers.1.mlp.up_proj.weight", "[24, 48]", "[48, 48]"},
                    [](ModelCopy& copy) {
                      halve_rows(copy.tensor("layers.1.mlp.up_proj.weight"));
                      copy.write();
                    }},
        BrokenFiles{"MissingTensor",
                    ErrorCode::kNotFound,
                    {"model.layers.1.self_attn.k_proj.weight"},
                    [](ModelCopy& copy) {
                      std::erase_if(copy.tensors, [](const test::TestTensor& tensor) {
                        return tensor.name.ends_with("1.self_attn.k_proj.weight");
                      });
                      copy.write();
                    }},
        BrokenFiles{"UnknownTensor",
                    ErrorCode::kCorruptFile,
                    {"model.layers.1.self_attn.extra.weight"},
                    [](ModelCopy& copy) {
                      copy.tensors.push_back(
                          test::make_tensor("model.layers.1.self_attn.extra.weight", {2}, "F32"));
                      copy.write();
                    }},
        BrokenFiles{"InfiniteValue",
                    ErrorCode::kCorruptFile,
                    {"model.layers.1.mlp.down_proj.weight"},
                    [](ModelCopy& copy) {
                      const float infinity = std::numeric_limits<float>::infinity();
                      std::string& data = copy.tensor("layers.1.mlp.down_proj.weight").data;
                      data.replace(data.size() - 4, 4, test::bytes_of({infinity}));
                      copy.write();
                    }},
        BrokenFiles{"TruncatedFile",
                    ErrorCode::kCorruptFile,
                    {"model.safetensors"},
                    [](ModelCopy& copy) { fs::resize_file(copy.path() / "model.safetensors", 100000); }},
        BrokenFiles{"NoFile",
                    ErrorCode::kNotFound,
                    {"safetensors"},
                    [](ModelCopy& copy) { fs::remove(copy.path() / "model.safetensors"); }},
        BrokenFiles{"NoConfig",
                    ErrorCode::kNotFound,
                    {"config.json"},
                    [](ModelCopy& copy) { fs::remove(copy.path() / "config.json"); }},
        BrokenFiles{
            "OtherRope",
            ErrorCode::kInvalidArgument,
            {"another model than the running one", "rope_theta 20000.0 instead of 10000.0"},
            [](ModelCopy& copy) { copy.edit_config("\"rope_theta\": 10000.0", "\"rope_theta\": 20000.0"); }},
        BrokenFiles{"OtherLayers",
                    ErrorCode::kInvalidArgument,
                    {"num_hidden_layers 1 instead of 2"},
                    [](ModelCopy& copy) {
                      copy.edit_config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
                    }},
        BrokenFiles{"OtherArchitecture",
                    ErrorCode::kInvalidArgument,
                    {"another model than the running one"},
                    [](ModelCopy& copy) { copy.edit_config("LlamaForCausalLM", "MistralForCausalLM"); }}),
    [](const testing::TestParamInfo<BrokenFiles>& one) { return one.param.name; });

TEST(ChangedConfig, MayDifferInWhatDoesNotChangeTheModel) {
  const EngineConfig config = make_config(kGoldens / "llama-gqa4-hd32");
  ModelCopy other(config.model_path);
  other.rotate_embedding().edit_config("\"use_cache\": true", "\"use_cache\": false");
  other.edit_config("\"eos_token_id\": 1", "\"eos_token_id\": 3");
  other.edit_config("\"bos_token_id\": 0", "\"transformers_version\": \"9.9\"");
  Engine engine(config);
  engine.update_weights(other.path());
  EXPECT_EQ(run(engine).tokens, answer_of(config, other.path()));
}

TEST(ChangedShards, WithAMissingOneLeaveTheOldWeightsInUse) {
  const EngineConfig config = make_config(kGoldens / "llama-sharded");
  const Tokens expected = answer_of(config, config.model_path);
  ModelCopy broken(config.model_path);
  fs::remove(broken.path() / "model-00002-of-00002.safetensors");
  Engine engine(config);
  expect_error(ErrorCode::kNotFound, {"model-00002-of-00002.safetensors"},
               [&] { engine.update_weights(broken.path()); });
  EXPECT_EQ(run(engine).tokens, expected);
}

TEST(ChangedWeightsWithDummies, ReplaceThem) {
  EngineConfig config = make_config(kGoldens / "llama-gqa4-hd32");
  const Tokens expected = answer_of(config, config.model_path);
  config.load_format = LoadFormat::kDummy;
  Engine engine(config);
  EXPECT_NE(run(engine).tokens, expected);
  engine.release_memory(kAll);
  engine.allocate_memory(kAll);
  engine.update_weights(config.model_path);
  EXPECT_EQ(run(engine).tokens, expected);
}

TEST(ChangedWeightsWithAdapters, KeepThem) {
  EngineConfig config = make_config(kGoldens / "llama-gqa4-hd32");
  config.lora_paths = {{.name = "style", .path = kGoldens / "lora/llama-gqa4-hd32/all-linear"}};
  ModelCopy other(config.model_path);
  other.rotate_embedding();
  const Tokens base = answer_of(config, other.path()), adapted = answer_of(config, other.path(), "style");
  ASSERT_NE(base, adapted);
  Engine engine(config);
  run(engine, make_prompt(23), "style");
  engine.update_weights(other.path());
  EXPECT_EQ(run(engine, make_prompt(23), "style").tokens, adapted);
  engine.release_memory(kAll);
  engine.load_adapter({.name = "same", .path = kGoldens / "lora/llama-gqa4-hd32/all-linear"});
  engine.allocate_memory(kAll);
  EXPECT_EQ(run(engine, make_prompt(23), "same").tokens, adapted);
  EXPECT_EQ(run(engine).tokens, base);
}

TEST(ChangedWeightsWithTiers, UseNoPagesOfOtherWeights) {
  const TempDir storage;
  EngineConfig config = make_config(kGoldens / "llama-gqa4-hd32");
  config.hierarchical_cache = {.enabled = true, .storage_dir = storage.path()};
  ModelCopy other(config.model_path);
  other.rotate_embedding();
  Engine engine(config);
  const Tokens old_answer = run(engine).tokens;
  engine.update_weights(other.path());
  const Answer updated = run(engine);
  EXPECT_EQ(updated.num_cached, 0);
  EXPECT_NE(updated.tokens, old_answer);
  // Pages on the disk are found by their weights.
  engine.update_weights(config.model_path);
  const Answer back = run(engine);
  EXPECT_EQ(back.tokens, old_answer);
  EXPECT_GT(back.num_cached, 0);
  engine.release_memory({.kv_cache = true});
  EXPECT_EQ(engine.cache_tiers().num_host_pages, 0);
  engine.allocate_memory(kAll);
  const Answer again = run(engine);
  EXPECT_EQ(again.tokens, old_answer);
  EXPECT_GT(again.num_cached, 0);
  expect_error(ErrorCode::kInvalidArgument, {"flush_cache false", "hicache_storage_dir"},
               [&] { engine.update_weights(other.path(), false); });
}

}  // namespace
}  // namespace attend
