// JsonText: JSON written from front to back. Replies are, and not made as a Json: that takes memory to be
// destroyed, so that a server would end where there is none.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace attend::serve {

// Into a JSON string; what is no UTF-8 is replaced.
void append_quoted(std::string_view text, std::string& json);

class JsonText {
 public:
  JsonText& begin_object() { return open('{'); }
  JsonText& end_object() { return close('}'); }
  JsonText& begin_array() { return open('['); }
  JsonText& end_array() { return close(']'); }
  JsonText& key(std::string_view name);
  JsonText& text(std::string_view value);
  JsonText& integer(int64_t value);
  // null, if it is not finite.
  JsonText& number(double value);
  JsonText& null() { return word("null"); }
  JsonText& boolean(bool value) { return word(value ? "true" : "false"); }
  JsonText& text_or_null(std::string_view value) { return value.empty() ? null() : text(value); }

  std::string take() { return std::move(json_); }

 private:
  JsonText& open(char bracket);
  JsonText& close(char bracket);
  JsonText& word(std::string_view value);
  void separate();

  std::string json_;
  bool has_one_ = false;  // before what comes next, in the same brackets
};

}  // namespace attend::serve
