// Reads the part of Jinja that chat templates use, and refuses the rest with its line.
#pragma once

#include "attend/text/chat_template/syntax/lexer.h"
#include "attend/text/chat_template/syntax/statements.h"

namespace attend::chat_template {

// `source`: valid UTF-8. Throws SyntaxError.
Block parse_template(std::string_view source);

}  // namespace attend::chat_template
