// Draft models and draft heads: requests get the same bits as without drafts for every draft model. Drafts
// depend on the request's tokens only, and every draft of a model that equals the target is accepted, because
// the K/V of the draft model are those of the request's tokens after prefix hits, chunks, preemptions, aborts
// and pauses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/hf/safetensors.h"
#include "attend/kernels/sampling/sampling.h"
#include "tests/engine/speculation/drafted_run.h"

namespace attend::model_drafter_test {
namespace {

using ModelDrafter = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Device, ModelDrafter, kDevices, device_name);

TEST_P(ModelDrafter, AcceptsEveryDraftOfAModelThatEqualsTheTarget) {
  for (const char* model : {"llama-gqa4-hd32", "deepseek-v2-lite", "gemma3-layer-ropes",
                            "gpt-oss-sinks-window", "llama4-chunks", "qwen3-moe-some-dense"}) {
    SCOPED_TRACE(model);
    const DraftedRun drafted = expect_same(self_drafting(model), make_requests(4));
    expect_all_accepted(drafted);
    EXPECT_GT(drafted.stats.drafts.accept_length(), 3.5);
  }
}

TEST_P(ModelDrafter, AcceptsEveryDraftForAnyNumberOfSteps) {
  for (const int num_steps : {1, 2, 5, 9})
    expect_all_accepted(expect_same(self_drafting("llama-gqa4-hd32", num_steps), make_requests(3)));
}

// K/V of drafts that were rejected, or accepted without K/V of the last one, are computed again.
TEST_P(ModelDrafter, ProducesTheSameBitsWithAnyDraftModel) {
  EngineConfig config = make_config("llama-gqa4-hd32", GetParam());
  for (const std::filesystem::path& draft : {similar_llama(), golden("qwen3-gqa2-hd128"),
                                             golden("deepseek-v2-lite"), golden("mistral-window-hd128")}) {
    SCOPED_TRACE(draft);
    config.speculation = standalone(draft, 4);
    std::vector<TestRequest> requests = make_requests(5, 40);
    requests[1].request.params.temperature = 0.3f;
    requests[2].request.params.frequency_penalty = 0.05f;
    const DraftCounts drafts = expect_same(config, requests).stats.drafts;
    EXPECT_LT(drafts.num_accepted, drafts.num_drafted);
    if (draft == similar_llama()) {
      EXPECT_GT(drafts.num_accepted, drafts.num_drafted / 4) << "the test checks too little";
    }
  }
}

TEST_P(ModelDrafter, DraftsForTargetsWithRecurrentLayers) {
  for (const char* model : {"qwen3-next-grouped", "granite-hybrid-dense", "lfm2-conv"}) {
    SCOPED_TRACE(model);
    EngineConfig config = make_config(model, GetParam());
    config.speculation = standalone(golden("llama-gqa4-hd32"));
    EXPECT_GT(expect_same(config, make_requests(3)).stats.drafts.num_drafted, 0);
  }
}

// The second request begins after pages that were computed before the draft model knew them.
TEST_P(ModelDrafter, ComputesCachedPagesThatTheDraftModelHasNot) {
  for (const int page_size : {1, 4, 16}) {
    EngineConfig config = self_drafting("llama-gqa4-hd32");
    config.backend_options.page_size = page_size;
    config.chunked_prefill_size = 32;
    std::vector<TestRequest> requests;
    // Its only token is sampled by the last chunk of the prompt, so nothing is drafted.
    requests.push_back(make_request(1, 70, 1));
    for (int i = 0; i < 3; ++i) {
      requests.push_back(make_request(1, 70 + i, 20));
      requests.back().submitted_at = 8 + i;
    }
    const DraftedRun drafted = expect_same(config, requests);
    expect_all_accepted(drafted);
    EXPECT_GT(drafted.stats.num_cached_tokens, 3 * 60);
  }
}

// Steps with more requests than disable_by_batch_size have no drafts, and the draft model lags.
TEST_P(ModelDrafter, ContinuesAfterStepsWithoutDrafts) {
  EngineConfig config = self_drafting("llama-gqa4-hd32");
  config.speculation.disable_by_batch_size = 2;
  config.chunked_prefill_size = 24;
  std::vector<TestRequest> requests = {make_request(0, 30, 90)};
  for (int i = 0; i < 3; ++i) {
    requests.push_back(make_request(i + 1, 20, 30));
    requests.back().submitted_at = 4;
  }
  const DraftedRun drafted = expect_same(config, requests);
  expect_all_accepted(drafted);
  EXPECT_GT(drafted.answers.at({1, 0}).counts.num_drafted, 20);
}

TEST_P(ModelDrafter, AcceptsEveryDraftAfterPreemptions) {
  for (const int page_size : {1, 8}) {
    EngineConfig config = self_drafting("llama-gqa4-hd32");
    config.backend_options.page_size = page_size;
    config.max_total_tokens = 144;
    config.schedule.conservativeness = 0.0;
    std::vector<TestRequest> requests;
    for (int i = 0; i < 6; ++i) requests.push_back(make_request(i, 10 + i, 40 + i));
    const DraftedRun drafted = expect_same(config, requests);
    expect_all_accepted(drafted);
    EXPECT_GT(drafted.num_preemptions, 0) << "the test checks too little";
  }
}

TEST_P(ModelDrafter, DraftsNothingAfterThePositionsOfTheDraftModel) {
  EngineConfig config = make_config("llama-gqa4-hd32", GetParam());
  config.speculation = standalone(golden("llama-rope-dynamic"));  // 128 positions
  const DraftedRun drafted = expect_same(config, {make_request(1, 100, 60), make_request(2, 130, 20)});
  EXPECT_GT(drafted.answers.at({1, 0}).counts.num_drafted, 0);
  EXPECT_EQ(drafted.answers.at({2, 0}).counts.num_drafted, 0);
}

TEST_P(ModelDrafter, HeadsDraftFromTheHiddenStatesOfTheTarget) {
  for (const HeadCase& head : kHeads) {
    SCOPED_TRACE(testing::Message() << head.target << " " << head.draft);
    EngineConfig config = head_drafting(head, 4, GetParam());
    config.chunked_prefill_size = 24;
    config.backend_options.page_size = 4;
    std::vector<TestRequest> requests = make_requests(4, 30);
    requests[1].request.params.temperature = 0.5f;
    const DraftedRun drafted = expect_same(config, requests);
    EXPECT_GT(drafted.stats.drafts.num_drafted, 4 * 4 * 20);
    expect_same_drafts(run(one_by_one(config), requests), drafted);
  }
}

// Returns the most likely tokens after each row of a head's golden logits.
std::vector<int32_t> golden_drafts(const HeadCase& head, const SafetensorsFile& file) {
  const Tensor logits = file.tensor("logits");
  const int64_t num_rows = logits.view().shape[0];
  std::vector<int32_t> ids(static_cast<size_t>(num_rows));
  Stream stream;
  kernels::argmax(logits, ids, stream);
  const auto files = open_checkpoint(golden(*head.draft == '\0' ? head.target : head.draft))->open_tensors();
  if (!files->contains("d2t")) return ids;
  const Tensor offsets = files->tensor("d2t");
  for (int32_t& id : ids) id += static_cast<int32_t>(offsets.span<int64_t>()[static_cast<size_t>(id)]);
  return ids;
}

// The first draft after tokens [0, i + 1] is that of the reference's row i, which has the hidden state of
// token i and token i + 1.
TEST_P(ModelDrafter, HeadsPredictTheTokensOfTheReference) {
  for (const HeadCase& head : kHeads) {
    SCOPED_TRACE(testing::Message() << head.target << " " << head.draft);
    const SafetensorsFile file(golden(*head.draft == '\0' ? head.target : head.draft) / "golden.safetensors");
    const std::vector<int32_t> expected = golden_drafts(head, file);
    const Tensor stored = file.tensor("tokens");
    const std::span<const int32_t> tokens = stored.span<const int32_t>();
    std::vector<TestRequest> requests;
    for (size_t i = 0; i < expected.size(); ++i) {
      requests.push_back(make_request(1, 1, 4));
      requests.back().request.prompt =
          std::vector<int32_t>(tokens.begin(), tokens.begin() + static_cast<int64_t>(i) + 1);
      requests.back().request.params.logit_bias = {{tokens[i + 1], 100.0f}};
    }
    EngineConfig config = head_drafting(head, 2, GetParam());
    config.speculation.disable_by_batch_size = 32;
    const DraftedRun drafted = run(config, requests);
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto& drafts = drafted.drafts.at({static_cast<RequestId>(i) + 1, 0});
      ASSERT_TRUE(drafts.contains(static_cast<int>(i) + 2)) << i;
      EXPECT_EQ(drafts.at(static_cast<int>(i) + 2).front(), expected[i]) << i;
    }
  }
}

// The trained heads of the bundled model: wrong positions or hidden states would lower their acceptance.
TEST_P(ModelDrafter, TrainedHeadsPredictMostTokensOfTheBundledModel) {
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
    EXPECT_GT(expect_same(config, requests).stats.drafts.accept_length(), 1.8);
  }
}

// Cached pages have K/V of the head, also those of an answer, except the last ones.
TEST_P(ModelDrafter, HeadsContinueAfterCachedPrefixes) {
  for (const int page_size : {1, 4, 16}) {
    SCOPED_TRACE(page_size);
    EngineConfig config = head_drafting(kHeads[0], 3, GetParam());
    config.backend_options.page_size = page_size;
    std::vector<TestRequest> requests = {make_request(1, 40, 60)};
    const std::vector<int32_t> answer = run(config, requests).answers.at({1, 0}).tokens;
    for (const int num_shared : {80, 60, 41, 40, 20}) {
      std::vector<int32_t> prompt = prompt_tokens(1, 40);
      prompt.insert(prompt.end(), answer.begin(), answer.end());
      prompt.resize(static_cast<size_t>(num_shared));
      for (const int32_t id : {5, 9, 7}) prompt.push_back(id + num_shared % 50);
      requests.push_back(make_request(1, 1, 20));
      requests.back().request.prompt = prompt;
      requests.back().submitted_at = 70;
    }
    const DraftedRun drafted = expect_same(config, requests);
    EXPECT_GT(drafted.stats.num_cached_tokens, 150);
    for (RequestId id = 2; id <= 6; ++id) EXPECT_GT(drafted.answers.at({id, 0}).counts.num_drafted, 30) << id;
    expect_same_drafts(run(one_by_one(config), requests), drafted);
  }
}

}  // namespace
}  // namespace attend::model_drafter_test
