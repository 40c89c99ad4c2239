// Grammars with speculative decoding: masks after drafted tokens, and the same answers with and without
// drafts.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "attend/engine/engine.h"
#include "tests/grammar/grammar_folder.h"

namespace attend {
namespace {

using testing::kVocabulary;
using testing::tiny_compiler;

const Grammar kGrammars[] = {
    {GrammarKind::kJsonSchema,
     R"({"type": "object", "properties": {"sun": {"type": "integer", "minimum": 10, "maximum": 99},
  "words": {"type": "array", "items": {"enum": ["tea", "river", "muffin"]}, "minItems": 4, "maxItems": 4}},
  "required": ["sun", "words"], "additionalProperties": false})"},
    {GrammarKind::kJsonSchema, R"({"type": "array", "items": {"type": "boolean"}, "maxItems": 20})"},
    {GrammarKind::kRegex, "(sun|river)=[0-9]{2,4}(, (sun|river)=[0-9]{2,4})*"},
    {GrammarKind::kEbnf, "root ::= (\"tea \" | \"river \" | \"sun=\" [0-9]+ \" \")*"},
    // Free text until "river", and text of a schema after it.
    {GrammarKind::kStructuralTag,
     R"({"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["river"], "tags": [
  {"begin": "river", "content": {"type": "json_schema", "json_schema": {"type": "object", "properties":
  {"n": {"type": "integer"}}, "required": ["n"]}}, "end": ";"}]}})"},
};

class GrammarDrafts : public testing::WithGrammars {
 protected:
  using Words = std::vector<uint32_t>;
  static constexpr size_t kWords = (kVocabulary + 31) / 32;

  // Mask of the next token; empty: all are allowed.
  static Words fill(TokenMask& mask) {
    Words words(kWords);
    if (!mask.fill(words)) words.clear();
    return words;
  }
  static bool allows(const Words& words, int32_t id) {
    return words.empty() || (words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
  }
  int below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }
  int32_t choose(const Words& words) {
    for (;;)
      if (const int32_t id = below(kVocabulary); allows(words, id) && (id > 2 || below(20) == 0)) return id;
  }
  // Prefers allowed tokens, if any is found.
  int32_t guess(const Words& words) {
    int32_t id = below(kVocabulary);
    for (int i = 0; i < 5000 && !allows(words, id); ++i) id = below(kVocabulary);
    return id;
  }

  std::mt19937 random_{5};
  std::unique_ptr<GrammarCompiler> compiler_ = tiny_compiler();
};

// Drafts of random tokens, allowed ones and others, of which a random number is accepted.
TEST_F(GrammarDrafts, MasksAfterDraftedTokensEqualThoseAfterAcceptedOnes) {
  int num_compared = 0, num_cut = 0, num_ended = 0;
  for (const Grammar& grammar : kGrammars) {
    SCOPED_TRACE(grammar.text);
    for (int round = 0; round < 6; ++round) {
      const auto drafting = compiler_->compile(grammar), plain = drafting->fork();
      std::vector<int32_t> text;
      for (int step = 0; step < 12; ++step) {
        // The path of the draft, as masks of a text that accepts it.
        const auto ahead = plain->fork();
        for (const int32_t id : text) {
          fill(*ahead);
          ahead->accept(id);
        }
        std::vector<int32_t> draft;
        std::vector<Words> masks = {fill(*ahead)};
        const int length = below(7);
        bool fits = true;
        for (int i = 0; i < length; ++i) {
          draft.push_back(fits && below(6) > 0 ? guess(masks.back()) : below(kVocabulary));
          fits = fits && allows(masks.back(), draft.back());
          if (!fits) continue;
          ahead->accept(draft.back());
          masks.push_back(fill(*ahead));
        }
        ASSERT_EQ(fill(*drafting), masks[0]);
        const size_t kept = drafting->draft(draft);
        num_cut += kept < draft.size();
        ASSERT_TRUE(kept == draft.size() || masks.size() == 1) << "only the first token is checked at once";
        for (size_t num = 1; num <= kept; ++num) {
          Words words(kWords);
          if (!drafting->fill_after(num, words)) words.clear();
          ASSERT_EQ(words, num < masks.size() ? masks[num] : Words()) << num;
          ++num_compared;
        }
        // Tokens of the draft, then another one.
        const int num_accepted = below(static_cast<int>(std::min(kept + 1, masks.size())));
        std::vector<int32_t> accepted(draft.begin(), draft.begin() + num_accepted);
        accepted.push_back(choose(masks[static_cast<size_t>(num_accepted)]));
        for (const int32_t id : accepted) {
          drafting->accept(id);
          text.push_back(id);
          num_ended += id == 1;
        }
        if (text.back() == 1) break;
      }
    }
  }
  EXPECT_GT(num_compared, 300) << "the test checks too little";
  EXPECT_GT(num_cut, 10) << "the test checks too little";
  EXPECT_GT(num_ended, 3) << "the test checks too little";
}

struct DraftedText {
  std::vector<int32_t> tokens;
  FinishReason reason = FinishReason::kNone;
  bool operator==(const DraftedText&) const = default;
};

// All grammars in one batch with a request without one, sampled and greedy, with drafts of both algorithms.
TEST_F(GrammarDrafts, DoNotChangeAnswers) {
  std::map<RequestId, DraftedText> plain;
  for (const auto algorithm :
       {std::optional<SpeculativeAlgorithm>(), std::optional(SpeculativeAlgorithm::kNgram),
        std::optional(SpeculativeAlgorithm::kSuffix)}) {
    EngineConfig config;
    config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
    config.deterministic_inference = true;
    config.speculation = {.algorithm = algorithm,
                          .num_draft_tokens = 7,
                          .ngram_min_match_window_size = 1,
                          .disable_by_batch_size = 32};
    Engine engine(config);
    std::map<RequestId, DraftedText> texts;
    int64_t num_accepted = 0, num_rejected = 0;
    for (uint64_t seed = 0; seed < 12; ++seed) {
      const size_t kind = seed % (std::size(kGrammars) + 1);
      GenerationRequest request{.prompt = "recall: sun=42, river=17; river=17, sun=42, tea; river="};
      request.params.temperature = seed % 3 == 0 ? 0.0f : 0.8f;
      request.params.max_new_tokens = 120;
      request.params.min_tokens = seed % 4 == 1 ? 15 : 0;
      request.params.seed = seed;
      if (kind < std::size(kGrammars)) request.mask = compiler_->compile(kGrammars[kind]);
      engine.submit(std::move(request));
    }
    while (engine.step([&](const RequestOutput& output) {
      DraftedText& text = texts[output.id];
      text.tokens.insert(text.tokens.end(), output.token_ids.begin(), output.token_ids.end());
      text.reason = output.finish_reason;
      EXPECT_NE(output.finish_reason, FinishReason::kError) << output.message;
      if (!output.finished() || !output.request.mask) return;
      const DraftCounts& counts = output.request.draft.counts;
      num_accepted += counts.num_accepted;
      num_rejected += counts.num_drafted - counts.num_accepted;
    })) {
    }
    if (!algorithm) {
      plain = texts;
      continue;
    }
    for (const auto& [id, text] : plain) {
      EXPECT_EQ(texts.at(id).tokens, text.tokens) << id;
      EXPECT_EQ(texts.at(id).reason, text.reason) << id;
    }
    EXPECT_GT(num_accepted, 50) << "the test checks too little";
    EXPECT_GT(num_rejected, 20) << "the test checks too little";
  }
}

}  // namespace
}  // namespace attend
