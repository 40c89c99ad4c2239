// "tools" and "tool_choice" of POST /v1/responses. Each function throws ApiError that names the field.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "attend/serve/formats/tool_format.h"
#include "attend/serve/json/fields.h"

namespace attend::serve {

struct ResponseTools {
  std::vector<Tool> tools;  // tools that the model may call
  ToolChoice choice;
  Json described = Json::array();     // all tools in the form of chat completions, for the template
  std::set<std::string> custom = {};  // names of custom tools, whose calls have a text instead of arguments
};

ResponseTools read_response_tools(const Fields& fields);

}  // namespace attend::serve
