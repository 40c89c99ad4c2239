// JSON texts as values of a template.
#pragma once

#include <string_view>

#include "attend/text/chat_template/values/value.h"

namespace attend::chat {

// The value of a JSON text; what it says comes from `from`. Keys keep their order, as in Python. Complains of
// what parse_json() refuses.
Value from_json(std::string_view json, Text::From from);

}  // namespace attend::chat
