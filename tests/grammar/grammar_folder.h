// Grammar libraries for tests: the folder that ATTEND_GRAMMAR_LIBRARY_PATH names.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "attend/grammar/grammar_compiler.h"

namespace attend::testing {

inline constexpr int kVocabulary = 2112;  // logits of the bundled model

// Fixture that skips its tests if the libraries are missing.
class WithGrammars : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!GrammarLibrary::load().available())
      GTEST_SKIP() << "no libraries of grammars: " << GrammarLibrary::install_hint();
  }
};

// Vocabulary of the bundled model.
inline GrammarVocabulary tiny_vocabulary() {
  return {Tokenizer::from_path(ATTEND_SOURCE_DIR "/models/attend-tiny"), kVocabulary, {1}};
}
inline std::unique_ptr<GrammarCompiler> tiny_compiler(const GrammarLimits& limits = {}) {
  return std::make_unique<GrammarCompiler>(GrammarLibrary::load(), tiny_vocabulary(), limits);
}

}  // namespace attend::testing
