// Engines with multi-head latent attention, for every backend that supports it: batches, chunked prefill,
// preemption, cached prefixes, and unsupported options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "attend/attention/backend.h"
#include "attend/backends/table.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/hf/safetensors.h"
#include "attend/engine/engine.h"
#include "attend/kv/req_to_token_pool.h"
#include "attend/tensor/cuda.h"
#include "tests/support/error_message.h"
#include "tests/support/gpu_device.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using testing::HasSubstr;
using testing_support::error_message;
using Tokens = std::vector<int32_t>;

const std::filesystem::path kGoldens = ATTEND_SOURCE_DIR "/tests/goldens";

struct LatentPrompt {
  Tokens ids, greedy;
};

std::vector<LatentPrompt> read_prompts(const std::filesystem::path& model) {
  const SafetensorsFile goldens(model / "golden.safetensors");
  const auto read = [&](const std::string& name) {
    const Tensor tensor = goldens.tensor(name);
    const View<int32_t> values = tensor.span<int32_t>();
    return Tokens{values.begin(), values.end()};
  };
  std::vector<LatentPrompt> prompts;
  for (int i = 0; i < 4; ++i) {
    const std::string prompt = "prompt." + std::to_string(i);
    prompts.push_back({read(prompt + ".input_ids"), read(prompt + ".greedy")});
  }
  return prompts;
}

EngineConfig latent_config(std::string_view backend, const char* model = "deepseek-v3") {
  EngineConfig config;
  config.model_path = kGoldens / model;
  config.kv_cache_dtype = DType::kF32;  // dtype of the goldens
  config.backend_options.attention_backend = backend;
  config.max_total_tokens = 2048;
  config.context_length = 256;
  return config;
}

// Submits all prompts at once. Returns the answers in the order of the prompts.
std::vector<Tokens> collect_answers(Engine& engine, const std::vector<LatentPrompt>& prompts) {
  std::vector<RequestId> ids;
  for (const LatentPrompt& prompt : prompts)
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

std::vector<Tokens> expected_answers(const std::vector<LatentPrompt>& prompts) {
  std::vector<Tokens> expected;
  for (const LatentPrompt& prompt : prompts) expected.push_back(prompt.greedy);
  return expected;
}

class LatentBackend : public testing::TestWithParam<const BackendEntry*> {
 protected:
  const std::vector<LatentPrompt> prompts_ = read_prompts(kGoldens / "deepseek-v3");
};

TEST_P(LatentBackend, MatchesTheTokensOfTransformersInABatchOfChunks) {
  EngineConfig config = latent_config(GetParam()->name);
  config.chunked_prefill_size = 40;
  Engine engine(config);
  EXPECT_EQ(collect_answers(engine, prompts_), expected_answers(prompts_));
}

TEST_P(LatentBackend, MatchesTransformersAfterPreemption) {
  EngineConfig config = latent_config(GetParam()->name);
  config.schedule.conservativeness = 0.0;  // reserves nothing for the answers of running requests
  // With large pages, the last page of each request has room for most of its answer.
  const bool token_pages = GetParam()->mla.page_sizes.contains(1);
  const int page_size = token_pages ? 1 : GetParam()->name == "cutlass_mla" ? 128 : 64;
  config.backend_options.page_size = page_size;
  int num_pages = token_pages ? 24 : 1;
  for (const LatentPrompt& prompt : prompts_)
    num_pages += (static_cast<int>(prompt.ids.size()) + page_size - 1) / page_size;
  config.max_total_tokens = num_pages * page_size;
  Engine engine(config);
  EXPECT_EQ(collect_answers(engine, prompts_), expected_answers(prompts_));
  if (token_pages) {
    EXPECT_GT(engine.num_preemptions(), 0);
  }
}

TEST_P(LatentBackend, MatchesTransformersFromCachedLatentRows) {
  Engine engine(latent_config(GetParam()->name));
  const std::vector<LatentPrompt> longest{prompts_.back()};
  EXPECT_EQ(collect_answers(engine, longest), expected_answers(longest));
  int num_cached = 0;
  engine.submit(longest[0].ids, {.max_new_tokens = 16, .ignore_eos = true});
  Tokens again;
  while (engine.step([&](const RequestOutput& output) {
    num_cached = output.request.num_cached_tokens;
    again.insert(again.end(), output.token_ids.begin(), output.token_ids.end());
  })) {
  }
  const int page_size = engine.info().page_size;
  EXPECT_EQ(num_cached, (static_cast<int>(longest[0].ids.size()) - 1) / page_size * page_size);
  EXPECT_EQ(again, longest[0].greedy);
}

// Keys of new tokens are rounded like cached ones, so a cached prefix changes no answer.
TEST_P(LatentBackend, StoresLatentRowsInFp8WhenSupported) {
  EngineConfig config = latent_config(GetParam()->name);
  config.kv_cache_dtype = DType::kF8E4M3;
  if (!GetParam()->mla.kv_dtypes.contains(DType::kF8E4M3)) {
    try {
      Engine engine(config);
      FAIL() << "fp8 rows without a capability";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_THAT(error.what(), HasSubstr(std::string(GetParam()->name)));
    }
    return;
  }
  Engine engine(config);
  EXPECT_EQ(engine.info().target().kv_token_bytes, 2 * 576u) << "2 layers";
  const std::vector<Tokens> cold = collect_answers(engine, prompts_);
  for (const Tokens& answer : cold) EXPECT_EQ(answer.size(), 16u);
  EXPECT_EQ(collect_answers(engine, prompts_), cold);
}

// 656 bytes per token and layer. In deterministic mode, chunks and preemption change no answer.
TEST_P(LatentBackend, StoresScaledRowsWhenSupported) {
  EngineConfig config = latent_config(GetParam()->name);
  config.kv_cache_dtype = DType::kU8;
  if (!GetParam()->mla.kv_dtypes.contains(DType::kU8)) {
    EXPECT_THAT(error_message(ErrorCode::kUnsupported, [&] { Engine engine(config); }),
                HasSubstr("kv_cache_dtype fp8_ds_mla: " + std::string(GetParam()->name) + " supports"));
    return;
  }
  Engine engine(config);
  EXPECT_EQ(engine.info().target().kv_token_bytes, 2 * 656u) << "2 layers";
  EXPECT_EQ(engine.info().pool_bytes() % 656, 0u);
  const std::vector<Tokens> cold = collect_answers(engine, prompts_);
  for (const Tokens& answer : cold) EXPECT_EQ(answer.size(), 16u);
  EXPECT_EQ(collect_answers(engine, prompts_), cold) << "from cached prefixes";
  if (GetParam()->mla.deterministic.empty()) return;
  config.deterministic_inference = true;
  Engine whole(config);
  const std::vector<Tokens> answers = collect_answers(whole, prompts_);
  config.chunked_prefill_size = 40;
  Engine chunked(config);
  EXPECT_EQ(collect_answers(chunked, prompts_), answers) << "in chunks";
  config.backend_options.page_size = 1;
  config.max_total_tokens = 24;  // more than one answer, fewer than all
  for (const LatentPrompt& prompt : prompts_) config.max_total_tokens += static_cast<int>(prompt.ids.size());
  config.schedule.conservativeness = 0.0;
  Engine narrow(config);
  EXPECT_EQ(collect_answers(narrow, prompts_), answers) << "after preemption";
  EXPECT_GT(narrow.num_preemptions(), 0);
}

// A copy of the model's folder with a second weight file that contains k_scale of the model's two layers.
class ScaledModel {
 public:
  ScaledModel(const std::filesystem::path& model, float k_scale) {
    std::string map;
    for (const std::string& name : open_checkpoint(model)->open_tensors()->names())
      map += "\"" + name + R"(": "1.safetensors", )";
    std::vector<test::TestTensor> scales;
    for (const std::string layer : {"0", "1"}) {
      scales.push_back(
          {"model.layers." + layer + ".self_attn.k_proj.k_scale", "F32", {}, test::bytes_of({k_scale})});
      map += "\"" + scales.back().name + "\": \"2.safetensors\"" + (layer == "0" ? ", " : "");
    }
    folder_.write("model.safetensors.index.json", R"({"weight_map": {)" + map + "}}");
    folder_.write("2.safetensors", test::safetensors_bytes(scales));
    std::filesystem::copy_file(model / "config.json", path() / "config.json");
    std::filesystem::create_symlink(model / "model.safetensors", path() / "1.safetensors");
  }

  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  test::TempDir folder_;
};

// Logprobs of a prompt's tokens.
std::vector<float> prompt_logprobs(const EngineConfig& config, const Tokens& prompt) {
  Engine engine(config);
  engine.submit(prompt, {.max_new_tokens = 1, .ignore_eos = true, .prompt_logprobs = 0});
  std::vector<float> logprobs;
  while (engine.step([&](const RequestOutput& output) {
    const auto scored = output.prompt_logprobs.logprobs;
    logprobs.insert(logprobs.end(), scored.begin(), scored.end());
  })) {
  }
  return logprobs;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0.0f;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST_P(LatentBackend, StoresFp8RowsByTheScaleOfTheCheckpoint) {
  if (!GetParam()->mla.kv_dtypes.contains(DType::kF8E4M3))
    GTEST_SKIP() << "this backend has no fp8 rows, which StoresLatentRowsInFp8WhenSupported checks";
  EngineConfig config = latent_config(GetParam()->name);
  config.chunked_prefill_size = 16;
  const Tokens& prompt = prompts_.back().ids;
  const std::vector<float> unrounded = prompt_logprobs(config, prompt);
  config.kv_cache_dtype = DType::kF8E4M3;
  const auto loss_with = [&](float k_scale) {
    const ScaledModel model(kGoldens / "deepseek-v3", k_scale);
    config.model_path = model.path();
    return largest_difference(prompt_logprobs(config, prompt), unrounded);
  };
  const float usual = loss_with(1.0f);
  EXPECT_GT(usual, 0.0f);
  // Another scale rounds values differently. Values that become 0 or saturate are lost.
  EXPECT_LT(loss_with(0.03f), 3.0f * usual);
  EXPECT_GT(loss_with(1e4f), 5.0f * usual) << "everything is 0";
  EXPECT_GT(loss_with(1e-4f), 5.0f * usual) << "everything is 448";
}

// Also on a GPU with graphs, where decode uses FlashMLA's contract and prefill uses Triton's.
TEST(LatentModels, KeepScaledRowsOnAGpu) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "this machine has no GPU that this build can use";
  const std::vector<LatentPrompt> prompts = read_prompts(kGoldens / "deepseek-v3");
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    EngineConfig config = latent_config("");
    config.device = testing_support::kGpu;
    config.dtype = dtype;
    config.kv_cache_dtype = DType::kU8;
    config.max_running_requests = 8;
    config.backend_options.prefill_backend = "triton";
    config.backend_options.decode_backend = "flashmla";
    Engine engine(config);
    EXPECT_EQ(engine.info().target().kv_token_bytes, 2 * 656u);
    EXPECT_FALSE(engine.info().target().graph_sizes.empty());
    const std::vector<Tokens> cold = collect_answers(engine, prompts);
    for (const Tokens& answer : cold) EXPECT_EQ(answer.size(), 16u);
    // With a cached prefix, sums are rounded in another order.
    const std::vector<Tokens> cached = collect_answers(engine, prompts);
    if (dtype == DType::kF32) {
      EXPECT_EQ(cached, cold) << "from cached prefixes";
    }
    config.disable_cuda_graph = true;
    Engine eager(config);
    EXPECT_EQ(collect_answers(eager, prompts), cold) << dtype << ": without graphs";
    config.backend_options = {.attention_backend = "triton", .page_size = 1};
    config.deterministic_inference = true;
    Engine whole(config);
    const std::vector<Tokens> answers = collect_answers(whole, prompts);
    config.max_total_tokens = 24;
    for (const LatentPrompt& prompt : prompts) config.max_total_tokens += static_cast<int>(prompt.ids.size());
    config.schedule.conservativeness = 0.0;
    Engine narrow(config);
    EXPECT_EQ(collect_answers(narrow, prompts), answers) << dtype << ": after preemption";
    EXPECT_GT(narrow.num_preemptions(), 0);
  }
}

std::vector<const BackendEntry*> latent_backends() {
  std::vector<const BackendEntry*> found;
  for (const BackendEntry& entry : backend_table())
    if (!entry.mla.decode.empty() && !entry.slow && !entry.mla.indexer && entry.name != "aiter")
      found.push_back(&entry);
  return found;
}

INSTANTIATE_TEST_SUITE_P(Every, LatentBackend, testing::ValuesIn(latent_backends()),
                         [](const auto& test) { return std::string(test.param->name); });

// Counts the calls that pass contiguous keys in addition to the cache.
class CountsContiguousKeys : public AttentionBackend {
 public:
  explicit CountsContiguousKeys(std::unique_ptr<AttentionBackend> inner) : inner_(std::move(inner)) {}
  void plan(const ForwardBatch& batch, Stream& stream) override { inner_->plan(batch, stream); }
  KvDestination destination(const AttentionLayer& layer, const ForwardBatch& batch) override {
    return inner_->destination(layer, batch);
  }
  void forward(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
               Stream& stream) override {
    num_calls += input.k.empty() ? 0 : 1;
    inner_->forward(layer, input, batch, stream);
  }

  static inline int num_calls = 0;

 private:
  std::unique_ptr<AttentionBackend> inner_;
};

constexpr BackendSpec kRequestRows{.index = kernels::KvIndexKind::kRequestRows};

TEST(LatentModels, AbsorbEveryStepWithoutContiguousSupport) {
  const std::vector<LatentPrompt> prompts = read_prompts(kGoldens / "deepseek-v3");
  BackendEntry mine = *find_backend(backend_table(), "cpu");
  mine.name = "mine";
  mine.aliases = {};
  mine.create = [](const BackendContext& context) -> std::unique_ptr<AttentionBackend> {
    return std::make_unique<CountsContiguousKeys>(create_kernel_backend(kRequestRows, context));
  };
  mine.mla.contiguous = false;
  EngineConfig config = latent_config("mine");
  config.backends = {&mine, 1};
  Engine absorbing(config);
  EXPECT_TRUE(absorbing.info().target().always_absorbs);
  CountsContiguousKeys::num_calls = 0;
  EXPECT_EQ(collect_answers(absorbing, prompts), expected_answers(prompts));
  EXPECT_EQ(CountsContiguousKeys::num_calls, 0);
  mine.mla.contiguous = true;
  Engine expanding(config);
  EXPECT_FALSE(expanding.info().target().always_absorbs);
  EXPECT_GT(expanding.info().target().workspace_bytes, absorbing.info().target().workspace_bytes)
      << "plans of expanded layers";
  EXPECT_EQ(collect_answers(expanding, prompts), expected_answers(prompts));
  EXPECT_GT(CountsContiguousKeys::num_calls, 0);
}

TEST(LatentModels, RoundDecodeQueriesToE4m3WhenTheContractRequires) {
  for (const auto& [kv_dtype, rounds] :
       {std::pair{DType::kF8E4M3, true}, {DType::kF32, false}, {DType::kBF16, false}}) {
    const MlaKvPool pool({.num_layers = 1, .num_pages = 2, .dtype = kv_dtype, .scales = {}});
    const ReqToTokenPool rows(1, 64);
    const AttentionLayer layer{.num_q_heads = 2,
                               .num_kv_heads = 1,
                               .head_dim_qk = 576,
                               .head_dim_v = 512,
                               .rope_dim = 64,
                               .kind = KvKind::kMla};
    const BackendConfig config{.model = {.layers = {layer}, .kv_dtype = kv_dtype, .max_context_len = 64},
                               .limits = {.max_reqs = 1, .max_tokens = 1, .max_kv_tokens = 64},
                               .page_size = 64};
    for (const BackendEntry& entry : backend_table()) {
      if (!entry.mla.supports_any_phase() || !entry.mla.kv_dtypes.contains(kv_dtype)) continue;
      if (entry.mla.indexer) continue;
      const auto backend = entry.create(
          {.config = config, .request_table = rows.table(), .pool = const_cast<MlaKvPool&>(pool)});
      Stream stream;
      const int32_t cu_seqlen_q[] = {0};
      for (const ForwardMode mode :
           {ForwardMode::kDecode, ForwardMode::kTargetVerify, ForwardMode::kExtend}) {
        const ForwardBatch batch{.mode = mode, .cu_seqlen_q = cu_seqlen_q};
        backend->plan(batch, stream);
        EXPECT_EQ(backend->destination(layer, batch).fp8_q,
                  rounds && mode != ForwardMode::kExtend && entry.name == "trtllm_mla")
            << entry.name << ", " << kv_dtype << ", " << to_string(mode);
      }
    }
  }
}

// aiter's kernels require 16 or 128 heads; these models have 2.
TEST(LatentModels, AreRejectedByBackendsWithOtherHeadsOrPages) {
  const auto error_text = [](const EngineConfig& config) -> std::string {
    try {
      Engine engine(config);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_text(latent_config("aiter")), HasSubstr("aiter"));
  EXPECT_THAT(error_text(latent_config("trtllm_mha")), HasSubstr("supports MHA only"));
  for (const auto& [backend, page_size, why] : {std::tuple{"flashmla", 16, "page_size 16: flashmla"},
                                                {"cutlass_mla", 64, "page_size 64: cutlass_mla"},
                                                {"trtllm_mla", 16, "page_size 16: trtllm_mla"}}) {
    EngineConfig config = latent_config(backend);
    config.backend_options.page_size = page_size;
    EXPECT_THAT(error_text(config), HasSubstr(why));
  }
}

TEST(LatentModels, AreRejectedWhenHeadsDifferFromTheFile) {
  const std::filesystem::path model = kGoldens / "deepseek-v3";
  std::ifstream file(model / "config.json");
  const std::string config((std::istreambuf_iterator<char>(file)), {});
  for (const auto& [from, to, tensor] :
       {std::tuple{R"("v_head_dim": 16)", R"("v_head_dim": 8)", "kv_b_proj"},
        {R"("num_attention_heads": 2)", R"("num_attention_heads": 4)", "q_b_proj"}}) {
    const test::TempDir folder;
    std::string changed = config;
    ASSERT_NE(config.find(from), std::string::npos) << from;
    changed.replace(config.find(from), std::string(from).size(), to);
    folder.write("config.json", changed);
    std::filesystem::create_symlink(model / "model.safetensors", folder.path() / "model.safetensors");
    EngineConfig wrong = latent_config("cpu");
    wrong.model_path = folder.path();
    EXPECT_THAT(
        error_message(ErrorCode::kCorruptFile, [&] { Engine engine(wrong); }),
        testing::AllOf(HasSubstr(std::string(tensor) + ".weight\": shape ["), HasSubstr("config.json")));
  }
}

TEST(LatentModels, AreBatchInvariantInDeterministicMode) {
  for (const char* model : {"deepseek-v2-lite", "deepseek-v2-groups", "deepseek-v3"}) {
    EngineConfig config = latent_config("cpu", model);
    config.deterministic_inference = true;
    const std::vector<LatentPrompt> prompts = read_prompts(kGoldens / model);
    Engine whole(config);
    config.chunked_prefill_size = 24;
    Engine chunked(config);
    EXPECT_EQ(collect_answers(whole, prompts), collect_answers(chunked, prompts)) << model;
  }
}

}  // namespace
}  // namespace attend
