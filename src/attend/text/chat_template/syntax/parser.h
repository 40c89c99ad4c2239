// Parser of the part of Jinja that chat templates use. Other constructs are rejected with their line.
#pragma once

#include "attend/text/chat_template/syntax/lexer.h"
#include "attend/text/chat_template/syntax/statements.h"

namespace attend::chat_template {

// Parses a template. `source`: valid UTF-8. Throws SyntaxError.
Block parse_template(std::string_view source);

}  // namespace attend::chat_template
