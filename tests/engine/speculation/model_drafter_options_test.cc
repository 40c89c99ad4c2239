// Options of draft models and draft heads: defaults, and what is rejected before weights are read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/backends/table.h"
#include "attend/base/error.h"
#include "tests/engine/speculation/drafted_run.h"
#include "tests/support/error_message.h"

namespace attend::model_drafter_test {
namespace {

using testing::HasSubstr;
using testing_support::error_message;

TEST(ModelDrafterOptions, ChooseTheNumberOfStepsAsSglang) {
  const auto resolved = [](const std::string& target, SpeculativeOptions options) {
    EngineConfig config = make_config(target);
    options.algorithm = SpeculativeAlgorithm::kStandalone;
    options.draft_model_path = golden("llama-gqa4-hd32");
    config.speculation = options;
    const SpeculativeOptions chosen = Engine(config).info().speculation;
    EXPECT_EQ(chosen.num_draft_tokens, chosen.num_steps + 1);
    EXPECT_EQ(chosen.eagle_topk, 1);
    return chosen.num_steps;
  };
  EXPECT_EQ(resolved("llama-bf16", {}), 5);
  EXPECT_EQ(resolved("qwen3-gqa2-hd128", {}), 3);
  EXPECT_EQ(resolved("qwen3-gqa2-hd128", {.num_steps = 7}), 7);
  EXPECT_EQ(resolved("qwen3-gqa2-hd128", {.num_draft_tokens = 3}), 2);
}

// Without drafts, the tensors of the layer for multi-token prediction are not used.
TEST(ModelDrafterOptions, LoadTheLayerOfTheTargetsFilesWithoutAWarning) {
  const auto log = [](const EngineConfig& config) {
    testing::internal::CaptureStderr();
    const Engine engine(config);
    return testing::internal::GetCapturedStderr();
  };
  for (const HeadCase& head : kHeads) {
    if (*head.draft != '\0') continue;
    SCOPED_TRACE(head.target);
    EXPECT_THAT(log(make_config(head.target)), HasSubstr("does not use are not loaded"));
    EXPECT_THAT(log(head_drafting(head, 3)), testing::Not(HasSubstr("not loaded")));
  }
}

// A backend that counts the steps of another one by mode.
class CountingBackend final : public AttentionBackend {
 public:
  using Counts = std::map<ForwardMode, int>;
  CountingBackend(std::unique_ptr<AttentionBackend> backend, Counts& counts)
      : backend_(std::move(backend)), counts_(counts) {}
  void plan(const ForwardBatch& batch, Stream& stream) override {
    ++counts_[batch.mode];
    backend_->plan(batch, stream);
  }
  KvDestination destination(const AttentionLayer& layer, const ForwardBatch& batch) override {
    return backend_->destination(layer, batch);
  }
  void forward(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
               Stream& stream) override {
    backend_->forward(layer, input, batch, stream);
  }

 private:
  std::unique_ptr<AttentionBackend> backend_;
  Counts& counts_;
};
CountingBackend::Counts prefill_counts, decode_counts;

TEST(ModelDrafterOptions, VerifyInTheBackendOfTheAttentionMode) {
  const BackendEntry& triton = *find_backend(backend_table(), "triton");
  std::vector<BackendEntry> table(backend_table().begin(), backend_table().end());
  table.push_back(triton);
  table.back().name = "counting_prefill";
  table.back().aliases = {};
  table.back().create = [](const BackendContext& context) -> std::unique_ptr<AttentionBackend> {
    return std::make_unique<CountingBackend>(find_backend(backend_table(), "triton")->create(context),
                                             prefill_counts);
  };
  table.push_back(triton);
  table.back().name = "counting_decode";
  table.back().aliases = {};
  table.back().create = [](const BackendContext& context) -> std::unique_ptr<AttentionBackend> {
    return std::make_unique<CountingBackend>(find_backend(backend_table(), "triton")->create(context),
                                             decode_counts);
  };
  EngineConfig config = make_config("llama-gqa4-hd32");
  config.deterministic_inference = false;
  config.backends = table;
  config.speculation = standalone(golden("llama-gqa4-hd32"));
  config.speculation.draft_attention_backend = "triton";
  config.backend_options.prefill_backend = "counting_prefill";
  config.backend_options.decode_backend = "counting_decode";
  for (const Phase mode : {Phase::kDecode, Phase::kPrefill}) {
    prefill_counts.clear();
    decode_counts.clear();
    config.speculation.attention_mode = mode;
    expect_all_accepted(run(config, make_requests(3)));
    EXPECT_GT(prefill_counts[ForwardMode::kExtend], 0);
    EXPECT_EQ(prefill_counts[ForwardMode::kTargetVerify] > 0, mode == Phase::kPrefill);
    EXPECT_EQ(decode_counts[ForwardMode::kTargetVerify] > 0, mode == Phase::kDecode);
  }
}

TEST(ModelDrafterOptions, CountTheMemoryOfBothModels) {
  EngineConfig config = make_config("llama-gqa4-hd32");
  const EngineInfo plain = Engine(config).info();
  config.speculation = standalone(golden("llama-gqa4-hd32"));
  const EngineInfo drafted = Engine(config).info();
  ASSERT_EQ(drafted.executors.size(), 2u);
  EXPECT_EQ(drafted.weight_bytes(), 2 * plain.weight_bytes());
  EXPECT_EQ(drafted.executors[0].kv_token_bytes, drafted.executors[1].kv_token_bytes);
  EXPECT_GT(drafted.executors[1].pool_bytes, 0u);
}

TEST(ModelDrafterOptions, RejectDraftModelsThatCannotServeTheTarget) {
  const auto error = [](ErrorCode code, const SpeculativeOptions& options,
                        const std::string& target = "llama-gqa4-hd32") {
    EngineConfig config = make_config(target);
    config.speculation = options;
    bool weights_read = false;
    const std::string message = error_message(code, [&] {
      EngineProgress progress;
      progress.resolved = [&](const Engine&) { weights_read = true; };
      Engine engine(config, progress);
    });
    EXPECT_FALSE(weights_read);
    return message;
  };
  EXPECT_THAT(error(ErrorCode::kInvalidArgument, standalone("")),
              HasSubstr("speculative_draft_model_path: required by speculative_algorithm STANDALONE"));
  EXPECT_THAT(error(ErrorCode::kNotFound, standalone("/nonexistent")), HasSubstr("/nonexistent"));
  EXPECT_THAT(error(ErrorCode::kInvalidArgument, standalone(ATTEND_SOURCE_DIR "/models/attend-tiny")),
              HasSubstr("expected the target's, 128"));
  EXPECT_THAT(error(ErrorCode::kUnsupported, standalone(golden("lfm2-conv"))), HasSubstr("recurrent layers"));
  EXPECT_THAT(error(ErrorCode::kUnsupported, standalone(golden("embed-bert-mean"))),
              HasSubstr("makes no text"));
  const auto head = [&](const char* name, SpeculativeAlgorithm algorithm) {
    SpeculativeOptions options = standalone(*name == '\0' ? std::filesystem::path() : golden(name));
    options.algorithm = algorithm;
    return options;
  };
  using enum SpeculativeAlgorithm;
  EXPECT_THAT(error(ErrorCode::kInvalidArgument, head("", kEagle3)),
              HasSubstr("speculative_draft_model_path: required by speculative_algorithm EAGLE3"));
  EXPECT_THAT(error(ErrorCode::kInvalidArgument, head("draft-eagle", kEagle3), "draft-target"),
              HasSubstr("expected speculative_algorithm EAGLE or NEXTN"));
  EXPECT_THAT(error(ErrorCode::kInvalidArgument, head("draft-eagle3", kEagle), "draft-target"),
              HasSubstr("expected speculative_algorithm EAGLE3"));
  EXPECT_THAT(error(ErrorCode::kInvalidArgument, head("draft-eagle3", kEagle3)), HasSubstr("hidden"));
  EXPECT_NE(error(ErrorCode::kUnsupported, head("", kNextn)), "");
  SpeculativeOptions options = standalone(golden("llama-gqa4-hd32"));
  options.draft_attention_backend = "flashmla";
  EXPECT_THAT(error(ErrorCode::kUnsupported, options), HasSubstr("flashmla"));
}

TEST(ModelDrafterOptions, RejectInvalidNumbers) {
  const auto error = [](ErrorCode code, SpeculativeOptions options) {
    return error_message(code, [&] { check(options); });
  };
  const auto kInvalid = ErrorCode::kInvalidArgument;
  SpeculativeOptions options = standalone("x", 64);
  EXPECT_THAT(error(kInvalid, options), HasSubstr("speculative_num_steps 64: 1 to 63"));
  options = standalone("x", 3);
  options.num_draft_tokens = 5;
  EXPECT_THAT(error(kInvalid, options), HasSubstr("speculative_num_draft_tokens 5: expected 4"));
  EXPECT_THAT(error(kInvalid, {.algorithm = SpeculativeAlgorithm::kNgram, .num_steps = 3}),
              HasSubstr("speculative_num_steps: requires a speculative_algorithm with a draft model"));
  EXPECT_THAT(error(kInvalid, {.draft_model_path = "x"}),
              HasSubstr("speculative_draft_model_path: requires"));
}

}  // namespace
}  // namespace attend::model_drafter_test
