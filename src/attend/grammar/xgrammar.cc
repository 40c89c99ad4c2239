#include "attend/grammar/xgrammar.h"

#include <algorithm>
#include <utility>

#include "attend/base/error.h"
#include "attend/grammar/check_schema.h"
#include "attend/grammar/pattern.h"
#include "attend/tensor/dlpack.h"

namespace attend::xgrammar {
namespace {

using tvm_ffi::Value;

constexpr char kTokenizerInfo[] = "xgrammar.tvm_ffi_binding.TokenizerInfo",
               kCompiler[] = "xgrammar.tvm_ffi_binding.GrammarCompiler",
               kCompiled[] = "xgrammar.tvm_ffi_binding.CompiledGrammar",
               kMatcher[] = "xgrammar.tvm_ffi_binding.GrammarMatcher", kInit[] = "__ffi_init__";

// Removes the time, source location and condition of xgrammar's messages: "[21:00:01] /x/y.cc:83: Check
// failed: (a < b) is false: Regex parsing error".
std::string reason(const std::string& message) {
  constexpr size_t kMaxBytes = 300;
  size_t start = message.find(".cc:");
  start = start == std::string::npos ? 0 : message.find(": ", start + 4);
  start = start == std::string::npos || start == 0 ? 0 : start + 2;
  constexpr std::string_view kFalse = ") is false: ";
  if (message.compare(start, 14, "Check failed: ") == 0)
    if (const size_t condition = message.find(kFalse, start); condition != std::string::npos)
      start = condition + kFalse.size();
  std::string text = message.substr(start, kMaxBytes);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace

bool Matcher::fill(std::span<uint32_t> words) const {
  if (has_ended()) return false;
  int64_t shape = std::ssize(words), stride = 1;
  dlpack::DLTensor tensor{.data = words.data(),
                          .device = {.device_type = dlpack::kCpu, .device_id = 0},
                          .ndim = 1,
                          .dtype = {.code = dlpack::kInt, .bits = 32, .lanes = 1},
                          .shape = &shape,
                          .strides = &stride,
                          .byte_offset = 0};
  // False: all tokens are allowed; the words are then unchanged.
  return library_->ffi
      ->call(library_->fill, {matcher_, Value::tensor(&tensor), Value(int64_t{0}), Value(false)})
      .boolean();
}

bool Matcher::accept(int32_t token_id) {
  if (!has_ended()) {
    const tvm_ffi::Library& ffi = *library_->ffi;
    if (!ffi.call(library_->accept, {matcher_, Value(int64_t{token_id}), Value(false)}).boolean())
      return false;
    if (ffi.call(library_->is_terminated, {matcher_}).boolean()) end_ = num_tokens_ + 1;
  }
  ++num_tokens_;
  return true;
}

void Matcher::rewind(int64_t num_tokens) {
  const int64_t num_matched = has_ended() ? end_ : num_tokens_;
  if (num_tokens < num_matched) {
    library_->ffi->call(library_->rollback, {matcher_, Value(num_matched - num_tokens)});
    end_ = -1;
  }
  num_tokens_ = num_tokens;
}

Library::Library(const std::filesystem::path& tvm_ffi, const std::filesystem::path& bindings)
    : tvm_ffi_path(tvm_ffi), bindings_path(bindings), ffi(tvm_ffi::Library::load(tvm_ffi, bindings)) {
  make_tokenizer_info = ffi->method(kTokenizerInfo, kInit);
  make_compiler = ffi->method(kCompiler, kInit);
  make_matcher = ffi->method(kMatcher, kInit);
  compile_json_schema = ffi->method(kCompiler, "compile_json_schema");
  compile_regex = ffi->method(kCompiler, "compile_regex");
  compile_ebnf = ffi->method(kCompiler, "compile_grammar_from_strings");
  compile_structural_tag = ffi->method(kCompiler, "compile_structural_tag");
  size_in_bytes = ffi->method(kCompiled, "memory_size_bytes");
  fill = ffi->method(kMatcher, "fill_next_token_bitmask");
  accept = ffi->method(kMatcher, "accept_token");
  rollback = ffi->method(kMatcher, "rollback");
  is_terminated = ffi->method(kMatcher, "is_terminated");
}

size_t CompiledGrammar::num_bytes() const {
  return static_cast<size_t>(library_->ffi->call(library_->size_in_bytes, {compiled_}).integer());
}

Matcher CompiledGrammar::make_matcher() const {
  constexpr int64_t kAnyRollback = -1;
  return {library_, library_->ffi->call(library_->make_matcher,
                                        {compiled_, Value(), Value(false), Value(kAnyRollback), Value()})};
}

Compiler::Compiler(std::shared_ptr<const Library> library, std::span<const std::string> tokens,
                   int vocab_size, std::span<const int32_t> stop_ids)
    : library_(std::move(library)), vocab_size_(vocab_size) {
  constexpr int64_t kRawBytes = 0;
  const tvm_ffi::Library& ffi = *library_->ffi;
  std::vector<Value> texts, stops;
  const size_t num_tokens = std::min(tokens.size(), static_cast<size_t>(vocab_size));
  for (const std::string& token : tokens.first(num_tokens)) texts.push_back(ffi.bytes(token));
  for (const int32_t id : stop_ids) stops.emplace_back(int64_t{id});
  const Value info = ffi.call(
      library_->make_tokenizer_info,
      {ffi.array(texts), Value(kRawBytes), Value(int64_t{vocab_size}), ffi.array(stops), Value(false)});
  // One thread and no cache, since attend has its own.
  compiler_ = ffi.call(library_->make_compiler, {info, Value(int64_t{1}), Value(false), Value(int64_t{-1})});
}

Value Compiler::compile_text(const Grammar& grammar) const {
  // Limits runs of spaces between JSON tokens: some models would generate spaces without end.
  constexpr int64_t kMaxSpaces = 32;
  const tvm_ffi::Library& ffi = *library_->ffi;
  switch (grammar.kind) {
    case GrammarKind::kJsonSchema:
      return ffi.call(library_->compile_json_schema,
                      {compiler_, ffi.text(check_schema(grammar.text)), /*any_whitespace=*/Value(true),
                       /*indent=*/Value(), /*separators=*/Value(),
                       /*strict_mode=*/Value(true), Value(kMaxSpaces),
                       /*any_order=*/Value(false)});
    case GrammarKind::kRegex:
      return ffi.call(library_->compile_regex, {compiler_, ffi.text(text_regex(grammar.text))});
    case GrammarKind::kEbnf:
      return ffi.call(library_->compile_ebnf, {compiler_, ffi.text(grammar.text), ffi.text("root")});
    case GrammarKind::kStructuralTag:
      return ffi.call(library_->compile_structural_tag,
                      {compiler_, ffi.text(check_structural_tag(grammar.text))});
  }
  return {};
}

std::shared_ptr<const CompiledGrammar> Compiler::compile(const Grammar& grammar) const {
  std::shared_ptr<const CompiledGrammar> compiled;
  try {
    compiled = std::make_shared<CompiledGrammar>(library_, compile_text(grammar));
  } catch (const Error& error) {
    fail(error.code(), to_string(grammar.kind), ": ", reason(error.what()));
  }
  std::vector<uint32_t> words((static_cast<size_t>(vocab_size_) + 31) / 32);
  if (compiled->make_matcher().fill(words) && std::ranges::all_of(words, [](uint32_t w) { return w == 0; }))
    fail(ErrorCode::kInvalidArgument, to_string(grammar.kind), ": no text of this vocabulary fits it");
  return compiled;
}

}  // namespace attend::xgrammar
