// Lexer of templates. It applies Jinja's trim_blocks and lstrip_blocks, as chat templates expect.
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
  std::string text;  // kText: the text to write; kString: the content of the string
  int64_t integer = 0;
  double real = 0.0;
};

// Syntax error and its line. `unsupported`: valid Jinja that attend does not support.
struct SyntaxError {
  int line;
  std::string message;
  bool unsupported = false;
};

// Splits a template into tokens. `source`: valid UTF-8. Throws SyntaxError.
std::vector<Token> read_tokens(std::string_view source);

}  // namespace attend::chat_template
