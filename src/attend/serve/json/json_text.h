// JsonText: JSON written from front to back. Replies use it instead of Json: destroying a Json allocates
// memory, so that a server without memory would end.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace attend::serve {

// Appends a quoted JSON string. Invalid UTF-8 is replaced.
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
  // Writes null if the value is not finite.
  JsonText& number(double value);
  JsonText& null() { return word("null"); }
  JsonText& boolean(bool value) { return word(value ? "true" : "false"); }
  // Writes a value that is JSON already.
  JsonText& raw(std::string_view json) { return word(json); }
  JsonText& text_or_null(std::string_view value) { return value.empty() ? null() : text(value); }

  std::string take() { return std::move(json_); }

 private:
  JsonText& open(char bracket);
  JsonText& close(char bracket);
  JsonText& word(std::string_view value);
  void separate();

  std::string json_;
  bool has_one_ = false;  // the open object or array has an element, so the next one needs a comma
};

}  // namespace attend::serve
