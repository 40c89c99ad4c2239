// xgrammar: grammars over a vocabulary as masks of its tokens.
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

// The classes of xgrammar 0.2.8 that attend uses. Their names are its Python binding's, so that other
// versions may have others.
struct Library {
  // Throws as tvm_ffi::Library.
  Library(const std::filesystem::path& tvm_ffi, const std::filesystem::path& bindings);

  std::shared_ptr<const tvm_ffi::Library> ffi;
  tvm_ffi::Library::Method make_tokenizer_info, make_compiler, make_matcher;
  tvm_ffi::Library::Method compile_json_schema, compile_regex, compile_ebnf, compile_structural_tag;
  tvm_ffi::Library::Method size_in_bytes, fill, accept, is_terminated;
};

// A grammar over a vocabulary. Immutable.
class CompiledGrammar : public std::enable_shared_from_this<CompiledGrammar> {
 public:
  CompiledGrammar(std::shared_ptr<const Library> library, tvm_ffi::Value compiled)
      : library_(std::move(library)), compiled_(std::move(compiled)) {}

  size_t num_bytes() const;
  // At the beginning of a text. Tokens that end a completion may come where the grammar is complete; after
  // one of them, if the completion goes on, every token may.
  std::shared_ptr<TokenMask> make_mask() const;

 private:
  std::shared_ptr<const Library> library_;
  tvm_ffi::Value compiled_;
};

class Compiler {
 public:
  // `tokens`: the bytes of each; none for those that stand for no text. `vocab_size`: of the model's logits.
  // `stop_ids`: tokens that end a completion, at least one.
  Compiler(std::shared_ptr<const Library> library, std::span<const std::string> tokens, int vocab_size,
           std::span<const int32_t> stop_ids);

  // Throws Error(kInvalidArgument) saying what is wrong with the grammar, also where it has no text. Takes as
  // long as it takes. On any thread.
  std::shared_ptr<const CompiledGrammar> compile(const Grammar& grammar) const;

 private:
  tvm_ffi::Value compile_text(const Grammar& grammar) const;

  std::shared_ptr<const Library> library_;
  int vocab_size_;
  tvm_ffi::Value compiler_;
};

}  // namespace attend::xgrammar
