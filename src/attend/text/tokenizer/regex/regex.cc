#include "attend/text/tokenizer/regex/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <string>

#include "attend/base/error.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::tokenizer {
namespace {

constexpr size_t kMaxPatternBytes = 64 * 1024;
// Memory limit of the interpreter, which is used if the JIT's machine stack (32 KiB) is too small for a
// match.
constexpr uint32_t kHeapLimitKib = 256 * 1024;

struct FreeCompileContext {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

struct RegexScratch::Impl {
  std::unique_ptr<pcre2_match_data, FreeMatchData> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, FreeMatchContext> context{pcre2_match_context_create(nullptr)};
};

RegexScratch::RegexScratch() : impl_(std::make_unique<Impl>()) {
  if (!impl_->data || !impl_->context) fail(ErrorCode::kOutOfMemory, "regex: no memory to match");
  pcre2_set_heap_limit(impl_->context.get(), kHeapLimitKib);
}
RegexScratch::~RegexScratch() = default;

struct Regex::Impl {
  std::unique_ptr<pcre2_code, FreeCode> code;
  bool jit = false;
  std::string where;

  // Searches from `at`. Returns false if there is no further match.
  bool search(std::string_view text, size_t at, RegexScratch::Impl& scratch) const {
    int result = PCRE2_ERROR_JIT_STACKLIMIT;
    if (jit) {
      result = pcre2_jit_match(code.get(), units(text), text.size(), at, PCRE2_NO_UTF_CHECK,
                               scratch.data.get(), scratch.context.get());
    }
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
      result = pcre2_match(code.get(), units(text), text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                           scratch.data.get(), scratch.context.get());
    }
    if (result == PCRE2_ERROR_NOMATCH) return false;
    if (result < 0) fail(ErrorCode::kUnsupported, where, ": regex gave up on the text: ", error_text(result));
    return true;
  }
};

Regex::Regex(std::string_view pcre2_pattern, std::string_view where) : impl_(std::make_unique<Impl>()) {
  impl_->where = where;
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
      pcre2_compile_context_create(nullptr));
  if (!context) fail(ErrorCode::kOutOfMemory, "regex: no memory to compile");
  // Uses Oniguruma's rules: lines end only at "\n", and ^ and $ match at every line.
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_bsr(context.get(), PCRE2_BSR_UNICODE);
  pcre2_set_max_pattern_length(context.get(), kMaxPatternBytes);
  const uint32_t options =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE;
  int error = 0;
  PCRE2_SIZE offset = 0;
  impl_->code.reset(
      pcre2_compile(units(pcre2_pattern), pcre2_pattern.size(), options, &error, &offset, context.get()));
  if (!impl_->code) {
    fail(ErrorCode::kUnsupported, where, ": regex \"", pcre2_pattern, "\" at byte ", offset, ": ",
         error_text(error));
  }
  impl_->jit = pcre2_jit_compile(impl_->code.get(), PCRE2_JIT_COMPLETE) == 0;
}

Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

void Regex::find_all(std::string_view text, RegexScratch& scratch, std::vector<Span>& matches) const {
  constexpr size_t kNone = static_cast<size_t>(-1);
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(scratch.impl_->data.get());
  size_t last_end = kNone;
  for (size_t at = 0; at <= text.size();) {
    if (!impl_->search(text, at, *scratch.impl_)) return;
    const Span match{found[0], found[1]};
    if (match.begin > match.end || match.end < at) {
      fail(ErrorCode::kUnsupported, impl_->where, ": regex matches backwards");
    }
    if (match.begin == match.end && match.end == last_end) {
      at += at < text.size() ? char_bytes(text[at]) : 1;
      continue;
    }
    matches.push_back(match);
    at = last_end = match.end;
  }
}

}  // namespace attend::tokenizer
