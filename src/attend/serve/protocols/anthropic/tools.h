// "tools" and "tool_choice" of Anthropic's Messages API.
#pragma once

#include <vector>

#include "attend/serve/formats/tool_format.h"
#include "attend/serve/json/fields.h"

namespace attend::serve {

struct MessageTools {
  std::vector<Tool> tools;            // empty if tool_choice is "none"
  Json for_template = Json::array();  // in OpenAI's form, which chat templates read
  ToolChoice choice;
  bool has_cache_control = false;
};

// Throws ApiError that names the field. Tools that Anthropic's servers run or define are rejected.
MessageTools read_message_tools(const Fields& fields);

}  // namespace attend::serve
