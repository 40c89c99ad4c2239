#include "attend/engine/step/logit_editor.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

namespace attend {
namespace {

using kernels::LogitEdit;

std::map<int32_t, LogitEdit> by_token(const LogitEditor& editor) {
  std::map<int32_t, LogitEdit> edits;
  for (const LogitEdit& edit : editor.edits())
    EXPECT_TRUE(edits.emplace(edit.token_id, edit).second) << "token " << edit.token_id << " twice";
  return edits;
}

constexpr float kNever = -std::numeric_limits<float>::infinity();

TEST(LogitEditor, IsNeededForWhatChangesALogit) {
  EXPECT_FALSE(LogitEditor::needed({}));
  EXPECT_FALSE(LogitEditor::needed({.temperature = 1.0f, .stop_token_ids = {5}, .logprobs = 3}));
  EXPECT_TRUE(LogitEditor::needed({.repetition_penalty = 1.1f}));
  EXPECT_TRUE(LogitEditor::needed({.frequency_penalty = 0.1f}));
  EXPECT_TRUE(LogitEditor::needed({.presence_penalty = -0.1f}));
  EXPECT_TRUE(LogitEditor::needed({.logit_bias = {{1, 1.0f}}}));
  EXPECT_TRUE(LogitEditor::needed({.min_tokens = 1}));
}

TEST(LogitEditor, CountsTheOutputForFrequencyAndPresenceAndNotThePrompt) {
  const std::vector<int32_t> prompt = {1, 2, 2};
  LogitEditor editor({.frequency_penalty = 0.5f, .presence_penalty = 0.25f}, prompt, {});
  EXPECT_TRUE(editor.edits().empty());
  editor.accept(2);
  editor.accept(3);
  editor.accept(2);
  const auto edits = by_token(editor);
  ASSERT_EQ(edits.size(), 2u);
  EXPECT_EQ(edits.at(2).offset, -(2 * 0.5f + 0.25f));
  EXPECT_EQ(edits.at(3).offset, -(0.5f + 0.25f));
  EXPECT_EQ(edits.at(2).repetition, 1.0f);
}

TEST(LogitEditor, CountsPromptAndOutputForRepetition) {
  const std::vector<int32_t> prompt = {1, 2, 2};
  LogitEditor editor({.repetition_penalty = 1.3f}, prompt, {});
  editor.accept(9);
  const auto edits = by_token(editor);
  ASSERT_EQ(edits.size(), 3u);
  for (const int32_t token : {1, 2, 9}) EXPECT_EQ(edits.at(token).repetition, 1.3f) << token;
  EXPECT_EQ(edits.at(9).offset, 0.0f);
}

TEST(LogitEditor, AddsBiasesToPenalties) {
  LogitEditor editor({.presence_penalty = 0.5f, .logit_bias = {{4, 2.0f}, {6, -100.0f}}}, {}, {});
  editor.accept(4);
  const auto edits = by_token(editor);
  EXPECT_EQ(edits.at(4).offset, 1.5f);
  EXPECT_EQ(edits.at(6).offset, -100.0f);
}

TEST(LogitEditor, BansStopTokensUntilThereAreMinTokens) {
  const std::vector<int32_t> stops = {7, 8, 7};
  LogitEditor editor({.logit_bias = {{7, 3.0f}}, .min_tokens = 2}, {}, stops);
  EXPECT_EQ(by_token(editor).at(7).offset, kNever);
  EXPECT_EQ(by_token(editor).at(8).offset, kNever);
  editor.accept(1);
  EXPECT_EQ(by_token(editor).at(7).offset, kNever);
  editor.accept(1);
  EXPECT_EQ(by_token(editor).at(7).offset, 3.0f);
  EXPECT_EQ(by_token(editor).at(8).offset, 0.0f);
}

}  // namespace
}  // namespace attend
