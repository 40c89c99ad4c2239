// "tools", "tool_choice" and "parallel_tool_calls" of OpenAI's chat requests. Each function throws ApiError
// that names the field.
#pragma once

#include <vector>

#include "attend/serve/formats/tool_format.h"
#include "attend/serve/json/fields.h"

namespace attend::serve {

// Returns no tools if tool_choice is "none".
std::vector<Tool> read_tools(const Fields& fields);
ToolChoice read_tool_choice(const Fields& fields, const std::vector<Tool>& tools);

}  // namespace attend::serve
