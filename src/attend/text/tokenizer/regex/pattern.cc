#include "attend/text/tokenizer/regex/pattern.h"

#include "attend/text/tokenizer/regex/onig_pattern.h"

namespace attend::tokenizer {

Pattern::Pattern(const JsonNode& node) {
  if (node.object_size() != 1) node.corrupt("is neither {\"String\": ...} nor {\"Regex\": ...}");
  if (const auto text = node.find("String")) {
    if (!text->string().empty()) {
      literal_ = text->string();
    } else {
      regex_.emplace("",
                     text->where());  // the empty text matches before every character, like the empty regex
    }
  } else {
    const JsonNode regex = node.at("Regex");
    regex_.emplace(onig_to_pcre2(regex.string(), regex.where()), regex.where());
  }
}

void Pattern::find_all(std::string_view text, RegexScratch& scratch, std::vector<Span>& matches) const {
  if (text.empty()) return;  // even if the regex matches an empty text
  if (literal_) {
    find_literal(text, *literal_, matches);
  } else {
    regex_->find_all(text, scratch, matches);
  }
}

void find_literal(std::string_view text, std::string_view needle, std::vector<Span>& matches) {
  for (size_t at = text.find(needle); at != std::string_view::npos;
       at = text.find(needle, at + needle.size())) {
    matches.push_back({at, at + needle.size()});
  }
}

size_t replaced_bytes(std::string_view text, const std::vector<Span>& matches, std::string_view content) {
  size_t bytes = text.size() + matches.size() * content.size();
  for (const Span& match : matches) bytes -= match.end - match.begin;
  return bytes;
}

void replace_matches(std::string_view text, const std::vector<Span>& matches, std::string_view content,
                     std::string& out) {
  out.reserve(out.size() + replaced_bytes(text, matches, content));
  size_t copied = 0;
  for (const Span& match : matches) {
    out += text.substr(copied, match.begin - copied);
    out += content;
    copied = match.end;
  }
  out += text.substr(copied);
}

}  // namespace attend::tokenizer
