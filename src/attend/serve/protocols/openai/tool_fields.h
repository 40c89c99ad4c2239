// "tools", "tool_choice" and "parallel_tool_calls" of a chat as OpenAI has them. Each throws ApiError naming
// the field.
#pragma once

#include <vector>

#include "attend/serve/formats/tool_format.h"
#include "attend/serve/json/fields.h"

namespace attend::serve {

// With tool_choice "none" no tools are looked at.
std::vector<Tool> read_tools(const Fields& fields);
ToolChoice read_tool_choice(const Fields& fields, const std::vector<Tool>& tools);

}  // namespace attend::serve
