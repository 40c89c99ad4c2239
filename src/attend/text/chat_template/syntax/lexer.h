// The tokens of a template, with Jinja's trim_blocks and lstrip_blocks applied as chat templates expect.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attend::chat_template {

struct Token {
  enum class Kind {
    kText,
    kTagBegin,
    kTagEnd,
    kOutputBegin,
    kOutputEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kSign,
    kEnd
  };
  Kind kind;
  int line;
  std::string text;  // of kText what is written; of kString its content
  int64_t integer = 0;
  double real = 0.0;
};

// What is wrong with a template, and where. `unsupported`: good Jinja that attend does not read.
struct SyntaxError {
  int line;
  std::string message;
  bool unsupported = false;
};

// `source`: valid UTF-8. Throws SyntaxError.
std::vector<Token> read_tokens(std::string_view source);

}  // namespace attend::chat_template
