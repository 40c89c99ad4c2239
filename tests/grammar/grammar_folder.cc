#include "tests/grammar/grammar_folder.h"

namespace attend::testing {

void WithGrammars::SetUp() {
  if (!GrammarLibrary::load().available())
    GTEST_SKIP() << "no libraries of grammars: " << GrammarLibrary::advice();
}

GrammarVocabulary tiny_vocabulary() {
  return {Tokenizer::from_path(ATTEND_SOURCE_DIR "/models/attend-tiny"), kVocabulary, {1}};
}

std::unique_ptr<GrammarCompiler> tiny_compiler(const GrammarLimits& limits) {
  return std::make_unique<GrammarCompiler>(GrammarLibrary::load(), tiny_vocabulary(), limits);
}

}  // namespace attend::testing
