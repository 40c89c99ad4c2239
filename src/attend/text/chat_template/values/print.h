// Values from JSON texts, and as text: Python's str and repr, and JSON as its json module writes it.
#pragma once

#include <string_view>

#include "attend/text/chat_template/values/value.h"

namespace attend::chat_template {

// What {{ value }} writes.
Text to_text(const Value& value);

struct JsonStyle {
  std::optional<int64_t> indent;  // none: all in one line
  bool ascii = false;             // characters beyond ASCII as \uXXXX
  bool sort_keys = false;
  std::string item_separator = ", ";  // with an indent ","
  std::string key_separator = ": ";
};
Text to_json(const Value& value, const JsonStyle& style);

// The value of a JSON text; what it says comes from `from`. Keys keep their order, as in Python. Complains of
// what parse_json() refuses.
Value from_json(std::string_view json, Text::From from);

}  // namespace attend::chat_template
