// Conversion of values from JSON and to text: Python's str and repr, and JSON in the format of Python's json
// module.
#pragma once

#include <string_view>

#include "attend/text/chat_template/values/value.h"

namespace attend::chat_template {

// Returns the text that {{ value }} writes.
Text to_text(const Value& value);

struct JsonStyle {
  std::optional<int64_t> indent;  // none: on one line
  bool ascii = false;             // writes characters above ASCII as \uXXXX
  bool sort_keys = false;
  std::string item_separator = ", ";  // "," with an indent
  std::string key_separator = ": ";
};
Text to_json(const Value& value, const JsonStyle& style);

// Parses JSON text. `from` is the origin of all its texts. Keys keep their order, as in Python. Throws
// TemplateError for JSON that parse_json() rejects.
Value from_json(std::string_view json, Text::From from);
// Like from_json() for JSON of a user that a model wrote: of equal keys, the last one counts, as in Python,
// and values may be nested as deep as those of a template.
Value from_model_json(std::string_view json);

}  // namespace attend::chat_template
