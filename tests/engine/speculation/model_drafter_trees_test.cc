// Drafts that are trees: requests get the same tokens as without drafts, whichever path is accepted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/base/error.h"
#include "tests/engine/speculation/drafted_run.h"
#include "tests/support/error_message.h"

namespace attend::model_drafter_test {
namespace {

using testing::HasSubstr;
using testing_support::error_message;

using DraftTrees = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Device, DraftTrees, kDevices, device_name);

EngineConfig similar_drafting(DeviceType device, int num_steps = 3) {
  EngineConfig config = make_config("llama-gqa4-hd32", device);
  config.speculation = standalone(similar_llama(), num_steps);
  return config;
}

std::vector<TestRequest> sampled_requests() {
  std::vector<TestRequest> requests = make_requests(5, 40);
  for (size_t i = 1; i < requests.size(); ++i) requests[i].request.params.temperature = 0.8f;
  requests[2].request.params.frequency_penalty = 0.1f;
  requests[2].request.params.repetition_penalty = 1.2f;
  requests[3].request.params.n = 2;
  requests[4].has_mask = true;
  return requests;
}

TEST_P(DraftTrees, ProduceTheSameTokensForEverySize) {
  for (const auto& [topk, num_steps, num_draft_tokens] :
       {std::tuple{2, 1, 3}, {2, 3, 8}, {4, 3, 16}, {4, 5, 8}, {3, 2, 4}, {8, 4, 64}, {2, 6, 2}}) {
    SCOPED_TRACE(testing::Message() << topk << " " << num_steps << " " << num_draft_tokens);
    const EngineConfig config = with_trees(similar_drafting(GetParam(), num_steps), topk, num_draft_tokens);
    const DraftCounts drafts = expect_same(config, sampled_requests()).stats.drafts;
    EXPECT_GT(drafts.num_accepted, 20);
    EXPECT_LT(drafts.num_accepted, drafts.num_drafted);
  }
}

// A target that samples often chooses the second candidate.
TEST_P(DraftTrees, AcceptMoreThanChains) {
  std::vector<TestRequest> requests = make_requests(3, 120);
  for (TestRequest& request : requests) request.request.params.temperature = 0.8f;
  EngineConfig config = similar_drafting(GetParam());
  const double chains = run(config, requests).stats.drafts.accept_length();
  const double trees = expect_same(with_trees(config, 4, 16), requests).stats.drafts.accept_length();
  EXPECT_GT(trees, chains + 0.1);
}

TEST_P(DraftTrees, ServeModelsOfEveryKindOfAttention) {
  for (const char* model : {"deepseek-v2-lite", "gemma3-layer-ropes", "gpt-oss-sinks-window", "llama4-chunks",
                            "qwen3-some-layers-slide", "gemma2-caps-window"}) {
    SCOPED_TRACE(model);
    EngineConfig config = make_config(model, GetParam());
    config.speculation = standalone(golden("llama-mha-hd64-tied"));
    EXPECT_GT(expect_same(with_trees(config, 3, 10), make_requests(4, 40)).stats.drafts.num_drafted, 100);
    config.speculation = standalone(golden(model));
    EXPECT_GT(expect_same(with_trees(config, 3, 10), make_requests(4, 40)).stats.drafts.accept_length(), 2.0);
  }
}

TEST_P(DraftTrees, OfHeadsProduceTheSameTokens) {
  for (const HeadCase& head : kHeads) {
    SCOPED_TRACE(testing::Message() << head.target << " " << head.draft);
    EngineConfig config = head_drafting(head, 3, GetParam());
    if (read_config(config.model_path).has_states()) continue;
    config.chunked_prefill_size = 24;
    config.backend_options.page_size = 4;
    EXPECT_GT(expect_same(with_trees(config, 3, 9), sampled_requests()).stats.drafts.num_drafted, 200);
  }
}

// The hidden states of nodes are those of their own paths: otherwise fewer tokens would be accepted.
TEST_P(DraftTrees, OfTrainedHeadsAcceptAsMuchAsChains) {
  using enum SpeculativeAlgorithm;
  for (const auto& [name, algorithm] :
       {std::pair{"attend-tiny-eagle3", kEagle3}, {"attend-tiny-mtp", kNextn}}) {
    SCOPED_TRACE(name);
    const std::filesystem::path models = ATTEND_SOURCE_DIR "/models";
    EngineConfig config = make_config("", GetParam());
    config.model_path = models / "attend-tiny";
    config.context_length = 256;
    config.speculation = standalone(models / name, 4);
    config.speculation.algorithm = algorithm;
    std::vector<TestRequest> requests;
    for (const char* words :
         {"laugh [ scout coffee writer pea roll milk ]", "apple [ river stone cloud tree ]",
          "green [ house music table winter friend ]"}) {
      requests.push_back(make_request(1, 1, 24));
      requests.back().request.prompt = std::string("copy: ") + words + " x ->";
      requests.back().request.params.ignore_eos = false;
    }
    const double chains = run(config, requests).stats.drafts.accept_length();
    EXPECT_GE(expect_same(with_trees(config, 4, 20), requests).stats.drafts.accept_length(), chains);
  }
}

TEST_P(DraftTrees, SurviveSmallPoolsPreemptionsAndCachedPrefixes) {
  for (const int page_size : {1, 4, 16}) {
    SCOPED_TRACE(page_size);
    EngineConfig config = with_trees(similar_drafting(GetParam(), 4), 3, 12);
    config.backend_options.page_size = page_size;
    config.max_total_tokens = 192;
    config.schedule.conservativeness = 0.0;
    config.chunked_prefill_size = 16;
    std::vector<TestRequest> requests;
    for (int i = 0; i < 6; ++i) {
      requests.push_back(make_request(i / 2, 20 + i, 50 + i));
      requests.back().submitted_at = 3 * i;
    }
    const DraftedRun drafted = expect_same(config, requests);
    EXPECT_GT(drafted.num_preemptions, 0) << "the test checks too little";
    EXPECT_GT(drafted.stats.num_cached_tokens, 0) << "the test checks too little";
    EXPECT_GT(drafted.stats.drafts.num_accepted, 20);
  }
}

// Near the end of the context, a tree has no slots.
TEST_P(DraftTrees, EndWithTheContext) {
  EngineConfig config = with_trees(similar_drafting(GetParam()), 4, 16);
  config.context_length = 64;
  for (const auto& [key, answer] : expect_same(config, make_requests(4, 100)).answers)
    EXPECT_EQ(answer.reason, FinishReason::kLength) << key.first;
}

std::string rejection(ErrorCode code, const EngineConfig& config) {
  bool weights_read = false;
  const std::string message = error_message(code, [&] {
    EngineProgress progress;
    progress.resolved = [&](const Engine&) { weights_read = true; };
    Engine engine(config, progress);
  });
  EXPECT_FALSE(weights_read);
  return message;
}

TEST(DraftTreeOptions, HaveSglangsDefaultSize) {
  const EngineConfig config = with_trees(similar_drafting(DeviceType::kCpu, 0), 4, 0);
  const SpeculativeOptions options = Engine(config).info().speculation;
  EXPECT_EQ(options.num_steps, 5);
  EXPECT_EQ(options.num_draft_tokens, 8);
  EXPECT_EQ(
      Engine(with_trees(similar_drafting(DeviceType::kCpu, 1), 4, 0)).info().speculation.num_draft_tokens, 5);
}

TEST(DraftTreeOptions, AreRejectedBeforeWeightsAreRead) {
  const auto config = [](int num_steps, int topk, int num_draft_tokens) {
    return with_trees(similar_drafting(DeviceType::kCpu, num_steps), topk, num_draft_tokens);
  };
  const auto kInvalid = ErrorCode::kInvalidArgument, kUnsupported = ErrorCode::kUnsupported;
  EXPECT_THAT(rejection(kInvalid, config(3, 21, 8)), HasSubstr("speculative_eagle_topk 21: 1 to 20"));
  EXPECT_THAT(rejection(kInvalid, config(3, 2, 12)),
              HasSubstr("speculative_num_draft_tokens 12: 2 to 11, with 3 steps of 2 candidates"));
  EXPECT_THAT(rejection(kInvalid, config(3, 8, 65)), HasSubstr("speculative_num_draft_tokens 65: 2 to 64"));
  EXPECT_THAT(rejection(kInvalid, config(20, 20, 8)), HasSubstr("speculative_num_steps 20: at most 13"));
  EngineConfig one = config(3, 2, 8);
  one.deterministic_inference = true;
  EXPECT_THAT(rejection(kUnsupported, one), HasSubstr("expected 1 with enable_deterministic_inference"));
  one = config(3, 2, 0);
  one.speculation.adaptive = true;
  EXPECT_THAT(rejection(kUnsupported, one), HasSubstr("expected 1 with speculative_adaptive"));
  one = config(3, 2, 8);
  one.model_path = golden("qwen3-next-grouped");
  EXPECT_THAT(rejection(kUnsupported, one), HasSubstr("recurrent states"));
  one = config(3, 2, 8);
  one.backend_options.attention_backend = "trtllm_mha";
  EXPECT_THAT(rejection(kUnsupported, one), HasSubstr("draft tree"));
  one = config(3, 2, 8);
  one.model_path = golden("gemma3-layer-ropes");
  one.speculation.draft_model_path = golden("gemma3-layer-ropes");
  one.backend_options = {.attention_backend = "fa3", .page_size = 16};
  EXPECT_THAT(rejection(kUnsupported, one), HasSubstr("page_size 16 with draft trees and a sliding window"));
  one.backend_options.page_size = 1;
  EXPECT_NO_THROW(Engine engine(one));
}

}  // namespace
}  // namespace attend::model_drafter_test
