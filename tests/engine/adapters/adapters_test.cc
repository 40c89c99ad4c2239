// Loading, unloading and refusal of LoRA adapters.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attend/checkpoint/hf/safetensors.h"
#include "attend/engine/engine.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using nlohmann::json;
using test::expect_error;
using test::TempDir;
using test::TestTensor;
using Tokens = std::vector<int32_t>;
namespace fs = std::filesystem;

const fs::path kGoldens = fs::path(ATTEND_SOURCE_DIR) / "tests/goldens";
const fs::path kAdapter = kGoldens / "lora/llama-gqa4-hd32/rank1-list";

// Copy of an adapter that a test changes.
class AdapterCopy {
 public:
  explicit AdapterCopy(const fs::path& from = kAdapter) {
    std::ifstream(from / "adapter_config.json") >> config;
    const SafetensorsFile file(from / "adapter_model.safetensors");
    for (const TensorEntry& entry : file.entries())
      tensors.push_back({entry.name, entry.dtype_name, entry.shape, file.read(entry)});
  }

  fs::path write() const {
    folder_.write("adapter_config.json", config.dump());
    folder_.write("adapter_model.safetensors", test::safetensors_bytes(tensors));
    return folder_.path();
  }

  json config;
  std::vector<TestTensor> tensors;

 private:
  TempDir folder_;
};

class AdaptersOfAnEngine : public testing::Test {
 protected:
  static EngineConfig config() {
    EngineConfig config;
    config.model_path = kGoldens / "llama-gqa4-hd32";
    config.backend_options.page_size = 1;
    return config;
  }

  Tokens answer(const std::string& adapter, int* num_cached = nullptr) {
    Tokens tokens;
    engine_.submit(
        {.prompt = kPrompt, .params = {.max_new_tokens = 8, .ignore_eos = true}, .adapter = adapter});
    while (engine_.step([&](const RequestOutput& output) {
      tokens.insert(tokens.end(), output.token_ids.begin(), output.token_ids.end());
      if (num_cached != nullptr) *num_cached = output.request.num_cached_tokens;
    })) {
    }
    return tokens;
  }

  // Expects load_adapter() to fail, and the engine to keep its adapters.
  void expect_refusal(ErrorCode code, std::initializer_list<std::string_view> parts, const fs::path& path) {
    expect_error(code, parts, [&] { engine_.load_adapter({.name = "faulty", .path = path}); });
    EXPECT_EQ(engine_.adapters().size(), 0u);
  }

  const Tokens kPrompt = {5, 9, 17, 33, 65, 3, 7};
  Engine engine_{config()};
};

TEST_F(AdaptersOfAnEngine, AreLoadedAndUnloadedByName) {
  const Tokens base = answer("");
  expect_error(ErrorCode::kInvalidArgument, {"adapter style: not loaded"}, [&] { answer("style"); });
  engine_.load_adapter({.name = "style", .path = kAdapter});
  const Tokens changed = answer("style");
  EXPECT_NE(changed, base);
  EXPECT_EQ(answer(""), base);
  ASSERT_EQ(engine_.adapters().size(), 1u);
  EXPECT_EQ(engine_.adapters().front().path, kAdapter);
  expect_error(ErrorCode::kInvalidArgument, {"adapter style: already loaded"},
               [&] { engine_.load_adapter({.name = "style", .path = kAdapter}); });
  expect_error(ErrorCode::kInvalidArgument, {"adapter other: not loaded; loaded are: style"},
               [&] { answer("other"); });
  engine_.unload_adapter("style");
  expect_error(ErrorCode::kNotFound, {"adapter style: not loaded"}, [&] { engine_.unload_adapter("style"); });
  expect_error(ErrorCode::kInvalidArgument, {"adapter style: not loaded"}, [&] { answer("style"); });
}

TEST_F(AdaptersOfAnEngine, StayWithTheRequestsThatUseThemWhenUnloaded) {
  engine_.load_adapter({.name = "style", .path = kAdapter});
  const Tokens expected = answer("style");
  Tokens tokens;
  engine_.submit(
      {.prompt = kPrompt, .params = {.max_new_tokens = 8, .ignore_eos = true}, .adapter = "style"});
  while (engine_.step([&](const RequestOutput& output) {
    tokens.insert(tokens.end(), output.token_ids.begin(), output.token_ids.end());
  }))
    if (tokens.size() == 2) {
      engine_.unload_adapter("style");
      // Another adapter of this name does not change the request.
      engine_.load_adapter({.name = "style", .path = kGoldens / "lora/llama-gqa4-hd32/one-layer"});
    }
  EXPECT_EQ(tokens, expected);
  EXPECT_NE(answer("style"), expected);
}

// The key of the prefix cache is the content.
TEST_F(AdaptersOfAnEngine, ShareCachedPrefixesUnderEveryName) {
  engine_.load_adapter({.name = "first", .path = kAdapter});
  engine_.load_adapter({.name = "second", .path = kAdapter});
  engine_.load_adapter({.name = "third", .path = kGoldens / "lora/llama-gqa4-hd32/one-layer"});
  int num_cached = -1;
  const Tokens tokens = answer("first", &num_cached);
  EXPECT_EQ(num_cached, 0);
  EXPECT_EQ(answer("second", &num_cached), tokens);
  EXPECT_EQ(num_cached, static_cast<int>(kPrompt.size()) - 1);
  EXPECT_NE(answer("third", &num_cached), tokens);
  EXPECT_EQ(num_cached, 0);
}

TEST_F(AdaptersOfAnEngine, MustFitTheModel) {
  expect_refusal(ErrorCode::kCorruptFile,
                 {"adapter faulty: ", "gpt_neox.layers.0.attention.dense.lora_A.weight",
                  "the model has no linear layer gpt_neox.layers.0.attention.dense"},
                 kGoldens / "lora/gpt-neox-sequential/by-head");
  // An adapter for a Llama with other shapes.
  expect_refusal(ErrorCode::kCorruptFile,
                 {"model.layers.0.mlp.down_proj.lora_B.weight", "BF16[64, 16]: expected [48, 16]",
                  "an adapter of another model"},
                 kGoldens / "lora/llama-bf16/bfloat16");
  AdapterCopy of_more_layers;
  const std::string name = "base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight";
  of_more_layers.tensors.push_back(test::make_tensor(name, {1, 48}, "F32"));
  expect_refusal(ErrorCode::kCorruptFile, {name, "no linear layer model.layers.2.self_attn.q_proj"},
                 of_more_layers.write());
  AdapterCopy of_another_rank;
  of_another_rank.config["r"] = 2;
  expect_refusal(ErrorCode::kCorruptFile, {"q_proj.lora_A.weight", "F32[1, 48]: expected [2, 48]"},
                 of_another_rank.write());
}

TEST_F(AdaptersOfAnEngine, MustBeComplete) {
  AdapterCopy without_b;
  without_b.tensors.erase(without_b.tensors.begin() + 1);
  expect_refusal(ErrorCode::kCorruptFile,
                 {"no tensor \"base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight\""},
                 without_b.write());
  AdapterCopy without_layer;
  std::erase_if(without_layer.tensors, [](const TestTensor& tensor) {
    return tensor.name.find("layers.1.self_attn.v_proj") != std::string::npos;
  });
  expect_refusal(
      ErrorCode::kCorruptFile,
      {"no tensor \"base_model.model.model.layers.1.self_attn.v_proj.lora_A.weight\"", "target_modules"},
      without_layer.write());
  AdapterCopy empty;
  empty.tensors.clear();
  expect_refusal(ErrorCode::kCorruptFile, {"no tensors of an adapter"}, empty.write());
  const TempDir folder;
  expect_refusal(ErrorCode::kNotFound, {"no adapter_config.json"}, folder.path());
  folder.write("adapter_config.json", "{}");
  expect_refusal(ErrorCode::kNotFound, {"no adapter_model.safetensors"}, folder.path());
  folder.write("adapter_model.bin", "");
  expect_refusal(ErrorCode::kNotFound, {"safe_serialization=True"}, folder.path());
  folder.write("adapter_model.safetensors", "torn");
  expect_refusal(ErrorCode::kCorruptFile, {"adapter_model.safetensors"}, folder.path());
  expect_refusal(ErrorCode::kNotFound, {"/no/such/folder"}, "/no/such/folder");
}

TEST_F(AdaptersOfAnEngine, MustBePlainLora) {
  const auto refuse = [&](const char* key, const json& value, std::initializer_list<std::string_view> parts) {
    SCOPED_TRACE(key);
    AdapterCopy copy;
    copy.config[key] = value;
    expect_refusal(ErrorCode::kUnsupported, parts, copy.write());
  };
  refuse("use_dora", true, {"adapter_config.json: use_dora"});
  refuse("bias", "all", {"bias", "\"all\""});
  refuse("modules_to_save", {"embed_tokens", "lm_head"}, {"modules_to_save", "lm_head"});
  refuse("target_parameters", {"mlp.experts.gate_up_proj"},
         {"target_parameters", "mlp.experts.gate_up_proj"});
  refuse("peft_type", "IA3", {"peft_type", "\"IA3\""});
  refuse("init_lora_weights", "pissa_niter_4", {"init_lora_weights", "pissa_niter_4"});
  const auto refuse_tensor = [&](const std::string& name, std::initializer_list<std::string_view> parts) {
    SCOPED_TRACE(name);
    AdapterCopy copy;
    copy.tensors.push_back(test::make_tensor("base_model.model." + name, {1, 48}));
    expect_refusal(ErrorCode::kUnsupported, parts, copy.write());
  };
  refuse_tensor("model.embed_tokens.lora_embedding_A", {"model.embed_tokens.lora_embedding_A", "embeddings"});
  refuse_tensor("lm_head.lora_A.weight", {"adapters of lm_head"});
  refuse_tensor("lm_head.weight", {"lm_head.weight", "modules_to_save"});
  refuse_tensor("model.layers.0.self_attn.q_proj.lora_magnitude_vector", {"lora_magnitude_vector", "DoRA"});
}

TEST_F(AdaptersOfAnEngine, HaveValidNumbers) {
  const auto refuse = [&](const char* key, const json& value, std::string_view part) {
    SCOPED_TRACE(key);
    AdapterCopy copy;
    copy.config[key] = value;
    expect_refusal(ErrorCode::kCorruptFile, {"adapter_config.json: ", part}, copy.write());
  };
  refuse("r", 0, "r 0");
  refuse("r", 257, "r 257");
  refuse("lora_alpha", -1, "lora_alpha -1");
  refuse("rank_pattern", {{"q_proj", 1000}}, "rank_pattern.q_proj 1000");
  refuse("target_modules", 5, "target_modules");
  AdapterCopy no_pattern;
  no_pattern.config["target_modules"] = "(";
  expect_refusal(ErrorCode::kUnsupported, {"target_modules", "\"(\""}, no_pattern.write());
}

TEST(AdaptersOfAConfig, AreCheckedBeforeTheModelIsLoaded) {
  const auto make = [](auto change) {
    EngineConfig config;
    config.model_path = kGoldens / "llama-gqa4-hd32";
    config.lora_paths = {{.name = "style", .path = kAdapter}};
    change(config);
    Engine engine(
        config,
        {.resolved = {}, .weights = [](size_t, size_t) { FAIL() << "weights are read"; }, .graphs = {}});
  };
  expect_error(ErrorCode::kNotFound, {"adapter style: /no/such/folder"},
               [&] { make([](EngineConfig& config) { config.lora_paths[0].path = "/no/such/folder"; }); });
  expect_error(ErrorCode::kInvalidArgument, {"adapter style: the name occurs twice"}, [&] {
    make([](EngineConfig& config) { config.lora_paths.push_back(config.lora_paths[0]); });
  });
  expect_error(ErrorCode::kUnsupported, {"LoRA adapters: the engine pools"},
               [&] { make([](EngineConfig& config) { config.pooling.emplace(); }); });
}

// Experts and latent attention have no adapters.
TEST(AdaptersOfExperts, AreRefusedByName) {
  EngineConfig config;
  config.model_path = kGoldens / "mixtral-top2";
  Engine engine(config);
  const auto refuse = [&](const std::string& module) {
    SCOPED_TRACE(module);
    AdapterCopy copy;
    copy.tensors = {test::make_tensor("base_model.model." + module + ".lora_A.weight", {1, 32})};
    expect_error(ErrorCode::kUnsupported, {"adapters of " + module},
                 [&] { engine.load_adapter({.name = "faulty", .path = copy.write()}); });
  };
  refuse("model.layers.0.block_sparse_moe.gate");
  refuse("model.layers.0.block_sparse_moe.experts.3.w2");
}

}  // namespace
}  // namespace attend
