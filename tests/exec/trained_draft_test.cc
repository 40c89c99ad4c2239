// The draft heads of the bundled model predict its answers. A mistake in a norm, an offset or an order of
// inputs changes no answer, but lowers the number of accepted drafts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "attend/text/tokenizer/tokenizer.h"
#include "tests/exec/draft_pair.h"

namespace attend {
namespace {

constexpr const char* kTarget = ATTEND_SOURCE_DIR "/models/attend-tiny";
constexpr int kNumDrafts = 4;

struct Text {
  std::vector<int32_t> tokens;  // prompt, answer and the end token
  int prompt_len = 0;
};

// Prompts of the demo with answers that fit the context.
std::vector<Text> demo_texts() {
  const Tokenizer tokenizer = Tokenizer::from_path(kTarget);
  std::ifstream file(std::string(kTarget) + "/demo_prompts.jsonl");
  std::vector<Text> texts;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json example = nlohmann::json::parse(line);
    Text text{.tokens = tokenizer.encode(example.at("prompt").get<std::string>()), .prompt_len = 0};
    text.prompt_len = static_cast<int>(text.tokens.size());
    const auto answer = tokenizer.encode(example.at("answer").get<std::string>(), false);
    text.tokens.insert(text.tokens.end(), answer.begin(), answer.end());
    text.tokens.push_back(1);
    if (std::ssize(text.tokens) + kNumDrafts < test::kDraftContext) texts.push_back(std::move(text));
  }
  return texts;
}

int32_t best(const TensorView& logits) {
  const auto row = logits.span<const float>();
  return static_cast<int32_t>(std::ranges::max_element(row) - row.begin());
}

struct Rounds {
  int num_rounds = 0, num_tokens = 0;
};

// Drafts greedily after each known part of a text, as an engine would; counts the tokens per round.
void draft_rounds(test::DraftPair& pair, const Text& text, Rounds& rounds) {
  const auto num_tokens = static_cast<int>(text.tokens.size());
  Stream& stream = pair.draft().stream();
  const Tensor hidden = test::copy_of(
      pair.target().launch(pair.step(text.tokens, 0, num_tokens)).hidden_states, pair.target().stream());
  // Launches rows [first, end) of the draft; row i has token i + 1.
  const auto launch = [&](int first, std::vector<int32_t> tokens, const TensorView& states,
                          HiddenSource source) {
    ExecutorBatch batch = pair.step(text.tokens, 0, 1);
    const auto count = static_cast<int>(tokens.size());
    batch.mode = source == HiddenSource::kDraft ? ForwardMode::kDecode : ForwardMode::kExtend;
    batch.requests[0].num_computed = first;
    batch.requests[0].num_new = count;
    batch.token_ids = std::move(tokens);
    batch.hidden_rows = {{0, states}};
    batch.hidden_source = source;
    const ExecutorOutput output = pair.draft().launch(batch);
    const Tensor state = test::copy_of(output.hidden_states.slice(0, count - 1, count), stream);
    return std::pair(best(output.logits), state);
  };
  int num_computed = 0;
  for (int known = text.prompt_len; known < num_tokens - 1;) {
    std::vector<int32_t> next(text.tokens.begin() + num_computed + 1, text.tokens.begin() + known + 1);
    auto [token, state] =
        launch(num_computed, next, hidden.view().slice(0, num_computed, known), HiddenSource::kTarget);
    num_computed = known;
    int accepted = 0;
    while (known + 1 + accepted < num_tokens &&
           token == text.tokens[static_cast<size_t>(known + 1 + accepted)]) {
      if (++accepted == kNumDrafts) break;
      std::tie(token, state) = launch(known + accepted - 1, {token}, state, HiddenSource::kDraft);
    }
    const int advance = std::min(accepted + 1, num_tokens - 1 - known);
    known += advance;
    ++rounds.num_rounds;
    rounds.num_tokens += advance;
  }
}

double accepted_length(const char* draft) {
  test::DraftPair pair(kTarget, std::string(ATTEND_SOURCE_DIR "/models/") + draft, {});
  Rounds rounds;
  for (const Text& text : demo_texts()) draft_rounds(pair, text, rounds);
  EXPECT_GE(rounds.num_tokens, 50);
  return 1.0 * rounds.num_tokens / rounds.num_rounds;
}

// Lengths of scripts/train_draft.py, which simulates the same rounds.
TEST(TrainedDraft, Eagle3HeadIsAcceptedAsInTraining) {
  EXPECT_NEAR(accepted_length("attend-tiny-eagle3"), 2.85, 0.15);
}

TEST(TrainedDraft, PredictionLayerIsAcceptedAsInTraining) {
  EXPECT_NEAR(accepted_length("attend-tiny-mtp"), 3.0, 0.15);
}

}  // namespace
}  // namespace attend
