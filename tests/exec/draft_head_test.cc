// Draft heads match references in numpy and transformers (scripts/make_draft_goldens.py): a draft's executor
// reads the hidden states of its target's executor, and then its own, on the CPU and on a GPU with graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attend/checkpoint/hf/safetensors.h"
#include "tests/exec/draft_pair.h"
#include "tests/support/gpu_device.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using test::copy_of;
using test::expect_error;
using Pair = test::DraftPair;

constexpr int kNumRows = 19, kChunk = 7;

std::filesystem::path golden_path(const std::string& name) {
  return std::filesystem::path(ATTEND_SOURCE_DIR "/tests/goldens") / name;
}

// Heads with files of their own are drafts of one target; other cases have both in one folder.
std::string target_of(const std::string& name) {
  return name.starts_with("draft-eagle") ? "draft-target" : name;
}

std::vector<float> host_floats(const TensorView& view, Stream& stream) {
  const Tensor host = Tensor::empty({view.shape[0], view.shape[1]}, DType::kF32);
  if (stream.device.type == DeviceType::kCuda) {
    cuda::copy(view, host, stream);
    cuda::synchronize(stream);
  } else {
    std::ranges::copy(view.span<const float>(), host.as<float>());
  }
  const auto numbers = host.span<float>();
  return {numbers.begin(), numbers.end()};
}

// Compares rows [first, ..) of a golden tensor.
void expect_rows(const char* what, const SafetensorsFile& golden, const std::string& name, int first,
                 const TensorView& view, Stream& stream) {
  const Tensor all = golden.tensor(name);
  const auto expected = all.view().slice(0, first, first + view.shape[0]).span<const float>();
  const auto everything = all.span<const float>();
  float largest = 0.0f;
  for (const float x : everything) largest = std::max(largest, std::abs(x));
  const std::vector<float> actual = host_floats(view, stream);
  ASSERT_EQ(actual.size(), expected.size()) << what;
  float error = 0.0f;
  for (size_t i = 0; i < actual.size(); ++i) error = std::max(error, std::abs(actual[i] - expected[i]));
  EXPECT_LE(error, 1e-4f * largest) << what << " from row " << first;
}

using Parameters = std::tuple<const char*, Device>;

class DraftHeads : public testing::TestWithParam<Parameters> {
 protected:
  void SetUp() override {
    if (std::get<1>(GetParam()).type == DeviceType::kCuda && cuda::device_count() == 0)
      GTEST_SKIP() << "no GPU";
  }
};

TEST_P(DraftHeads, MatchTheReferenceInChunksAndAfterTheirOwnState) {
  const auto [name, device] = GetParam();
  Pair pair(golden_path(target_of(name)), golden_path(name), device);
  const SafetensorsFile golden(golden_path(name) / "golden.safetensors");
  const Tensor stored = golden.tensor("tokens");
  const auto tokens = stored.span<const int32_t>();
  ASSERT_EQ(std::ssize(tokens), kNumRows + 2);
  Stream& stream = pair.draft().stream();
  const auto run_draft = [&](int first, int end, const TensorView& hidden, HiddenSource source) {
    ExecutorBatch batch = pair.step(tokens.subspan(1), first, end);
    batch.hidden_rows = {{0, hidden}};
    batch.hidden_source = source;
    return pair.draft().launch(batch);
  };
  Tensor last;
  for (int first = 0; first < kNumRows; first += kChunk) {
    const int end = std::min(first + kChunk, kNumRows);
    const ExecutorOutput target = pair.target().launch(pair.step(tokens, first, end));
    expect_rows("target", golden, "target_hidden", first, target.hidden_states, pair.target().stream());
    const ExecutorOutput draft = run_draft(first, end, target.hidden_states, HiddenSource::kTarget);
    expect_rows("logits", golden, "logits", first, draft.logits, stream);
    expect_rows("hidden", golden, "hidden", first, draft.hidden_states, stream);
    last = copy_of(draft.hidden_states.slice(0, end - first - 1, end - first), stream);
  }
  const ExecutorOutput next = run_draft(kNumRows, kNumRows + 1, last, HiddenSource::kDraft);
  expect_rows("logits", golden, "next_logits", 0, next.logits, stream);
  expect_rows("hidden", golden, "next_hidden", 0, next.hidden_states, stream);
}

constexpr const char* kCases[] = {
    "draft-eagle3", "draft-eagle3-norms", "draft-eagle3-bias", "draft-eagle3-final", "draft-eagle",
    "draft-mimo",   "draft-ernie4-5",     "draft-glm4-moe",    "draft-deepseek-v3",  "draft-qwen3-next"};

std::string case_name(const testing::TestParamInfo<Parameters>& info) {
  std::string name = std::get<0>(info.param);
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(OnCpu, DraftHeads,
                         testing::Combine(testing::ValuesIn(kCases), testing::Values(Device{})), case_name);
INSTANTIATE_TEST_SUITE_P(OnGpu, DraftHeads,
                         testing::Combine(testing::ValuesIn(kCases), testing::Values(testing_support::kGpu)),
                         case_name);

TEST(DraftHead, UsesTheTargetsTableAndHead) {
  Pair pair(golden_path("draft-target"), golden_path("draft-eagle3-norms"), {});
  const VocabWeights target = pair.target().model().vocab(), draft = pair.draft().model().vocab();
  EXPECT_EQ(draft.embedding.data.data, target.embedding.data.data);
  EXPECT_EQ(draft.head.weight.data.data, target.head.weight.data.data);
  EXPECT_TRUE(pair.draft().model().head_tokens().empty());
  Pair own(golden_path("draft-target"), golden_path("draft-eagle3-final"), {});
  EXPECT_NE(own.draft().model().vocab().embedding.data.data,
            own.target().model().vocab().embedding.data.data);
  EXPECT_EQ(own.draft().model().vocab().head.weight.data.data,
            own.draft().model().vocab().embedding.data.data);
}

TEST(DraftHead, MapsTheRowsOfASmallHeadToTokens) {
  Pair pair(golden_path("draft-target"), golden_path("draft-eagle3"), {});
  EXPECT_EQ(pair.draft().spec().head_size(), 48);
  const View<const int32_t> tokens = pair.draft().model().head_tokens();
  ASSERT_EQ(tokens.size(), 48u);
  EXPECT_TRUE(std::ranges::is_sorted(tokens));
  const auto files = open_checkpoint(golden_path("draft-eagle3"))->open_tensors();
  const std::string in_head = files->read("t2d");
  ASSERT_EQ(in_head.size(), 128u);
  EXPECT_EQ(std::ranges::count(in_head, '\1'), 48);
  for (const int32_t token : tokens) EXPECT_EQ(in_head[static_cast<size_t>(token)], '\1');
}

TEST(DraftHead, ReturningHiddenStatesChangesNoBitOfTheLogits) {
  Pair pair(golden_path("draft-target"), golden_path("draft-eagle3"), {});
  const std::vector<int32_t> tokens = {5, 9, 2, 77, 31, 8};
  ExecutorBatch batch = pair.step(tokens, 0, 6);
  const auto logits = [&] { return host_floats(pair.target().launch(batch).logits, pair.target().stream()); };
  const std::vector<float> with_states = logits();
  batch.hidden_states = false;
  EXPECT_EQ(logits(), with_states);
}

TEST(DraftHead, ReadsHiddenStatesThatTheDeviceWroteToItsInputs) {
  Pair pair(golden_path("draft-target"), golden_path("draft-eagle3"), {});
  const std::vector<int32_t> tokens = {5, 9, 2, 77, 31, 8};
  const Tensor hidden =
      copy_of(pair.target().launch(pair.step(tokens, 0, 5)).hidden_states, pair.target().stream());
  ExecutorBatch batch = pair.step(std::span(tokens).subspan(1), 0, 5);
  batch.hidden_rows = {{0, hidden.view().slice(0, 0, 2)}, {2, hidden.view().slice(0, 2, 5)}};
  const auto logits = [&] { return host_floats(pair.draft().launch(batch).logits, pair.draft().stream()); };
  const std::vector<float> copied = logits();
  const TensorView inputs = pair.draft().hidden_inputs(HiddenSource::kTarget);
  std::ranges::fill(inputs.slice(0, 0, 5).span<float>(), 0.0f);
  batch.hidden_rows.clear();
  EXPECT_NE(logits(), copied);
  kernels::copy_rows(hidden, inputs.slice(0, 0, 5), pair.draft().stream());
  EXPECT_EQ(logits(), copied);
}

TEST(DraftHead, NamesAMissingTensor) {
  const auto rejects = [](const char* name, const std::function<void(ModelSpec&)>& change, ErrorCode code,
                          std::initializer_list<std::string_view> parts) {
    expect_error(code, parts, [&] { Pair(golden_path("draft-target"), golden_path(name), {}, change); });
  };
  rejects("draft-eagle3", [](ModelSpec& spec) { spec.draft->bias = true; }, ErrorCode::kNotFound,
          {"fc.bias"});
  rejects("draft-eagle3", [](ModelSpec& spec) { spec.draft->norm_per_state = true; }, ErrorCode::kNotFound,
          {"fc_norm.0.weight", "2 more"});
  rejects("draft-eagle3-norms", [](ModelSpec& spec) { spec.draft->head_size = 100; }, ErrorCode::kNotFound,
          {"lm_head.weight"});
  rejects("draft-eagle3-bias", [](ModelSpec& spec) { spec.vocab_size = 200; }, ErrorCode::kNotFound, {"d2t"});
  // A norm that config.json does not mention would be ignored.
  rejects("draft-eagle3-norms", [](ModelSpec& spec) { spec.draft->norm_per_state = false; },
          ErrorCode::kCorruptFile, {"fc_norm.0.weight", "no such tensor"});
}

}  // namespace
}  // namespace attend
