// Wrapper of xgrammar: compiles grammars for a vocabulary and returns masks of its tokens.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attend/engine/generation_request.h"
#include "attend/grammar/grammar_compiler.h"
#include "attend/grammar/tvm_ffi.h"

namespace attend::xgrammar {

// Classes of xgrammar 0.2.8 that attend uses. Their names are those of its Python binding, so other versions
// may differ.
struct Library {
  // Throws the errors of tvm_ffi::Library::load().
  Library(const std::filesystem::path& tvm_ffi, const std::filesystem::path& bindings);

  std::filesystem::path tvm_ffi_path, bindings_path;
  std::shared_ptr<const tvm_ffi::Library> ffi;
  tvm_ffi::Library::Method make_tokenizer_info, make_compiler, make_matcher;
  tvm_ffi::Library::Method compile_json_schema, compile_regex, compile_ebnf, compile_structural_tag;
  tvm_ffi::Library::Method size_in_bytes, fill, accept, rollback, is_terminated;
};

// Position in a text of a grammar. Called from one thread. End-of-sequence tokens are allowed where the
// grammar is complete; after one of them, every token is allowed.
class Matcher {
 public:
  // `matcher`: xgrammar's GrammarMatcher, at the start of a text.
  Matcher(std::shared_ptr<const Library> library, tvm_ffi::Value matcher)
      : library_(std::move(library)), matcher_(std::move(matcher)) {}

  // As TokenMask::fill().
  bool fill(std::span<uint32_t> words) const;
  // Returns false, and changes nothing, if the token is not allowed.
  bool accept(int32_t token_id);
  // Returns to the position after the first `num_tokens` accepted tokens.
  void rewind(int64_t num_tokens);

 private:
  bool has_ended() const { return end_ >= 0; }

  std::shared_ptr<const Library> library_;
  tvm_ffi::Value matcher_;
  int64_t num_tokens_ = 0;  // accepted
  int64_t end_ = -1;        // tokens up to the end-of-sequence token; -1: none was accepted
};

// Grammar compiled for a vocabulary. Immutable.
class CompiledGrammar : public std::enable_shared_from_this<CompiledGrammar> {
 public:
  CompiledGrammar(std::shared_ptr<const Library> library, tvm_ffi::Value compiled)
      : library_(std::move(library)), compiled_(std::move(compiled)) {}

  size_t num_bytes() const;
  Matcher make_matcher() const;

 private:
  std::shared_ptr<const Library> library_;
  tvm_ffi::Value compiled_;
};

class Compiler {
 public:
  // `tokens`: bytes of each token; empty for tokens without text. `vocab_size`: width of the model's logits.
  // `stop_ids`: end-of-sequence tokens, at least one.
  Compiler(std::shared_ptr<const Library> library, std::span<const std::string> tokens, int vocab_size,
           std::span<const int32_t> stop_ids);

  // Throws Error(kInvalidArgument) that states the problem of the grammar, also if it matches no text. Has no
  // time limit. May be called from any thread.
  std::shared_ptr<const CompiledGrammar> compile(const Grammar& grammar) const;

 private:
  tvm_ffi::Value compile_text(const Grammar& grammar) const;

  std::shared_ptr<const Library> library_;
  int vocab_size_;
  tvm_ffi::Value compiler_;
};

}  // namespace attend::xgrammar
