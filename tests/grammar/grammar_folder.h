// Where the libraries of grammars are for tests: in the folder that ATTEND_GRAMMAR_LIBRARY_PATH names.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "attend/grammar/grammar_compiler.h"

namespace attend::testing {

inline constexpr int kVocabulary = 2112;  // of the bundled model's logits

// Skips tests where the libraries are not.
class WithGrammars : public ::testing::Test {
 protected:
  void SetUp() override;
};

// Over the bundled model's tokens.
std::unique_ptr<GrammarCompiler> tiny_compiler(const GrammarLimits& limits = {});
GrammarVocabulary tiny_vocabulary();

}  // namespace attend::testing
