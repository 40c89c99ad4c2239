// "system" and "messages" of Anthropic's Messages API, converted to the messages that chat templates read.
#pragma once

#include <string>
#include <vector>

#include "attend/serve/json/fields.h"

namespace attend::serve {

struct Conversation {
  Json messages = Json::array();
  std::string continued;       // text of the assistant's last message, which the answer continues
  bool ends_with_user = true;  // otherwise the last message is `continued`
  bool has_cache_control = false;
  std::vector<std::string> images;  // files, in the order of the messages
};

// Consecutive messages of one role are one turn. Texts of a turn are joined by line breaks; a tool_result
// becomes a message of the role "tool", and thinking "reasoning_content". With images, the content of a turn
// is a list of parts. Throws ApiError that names the
// block for unsupported types, signatures of another text, and results without a call.
Conversation read_conversation(const Fields& fields);

// Returns true if the object has "cache_control". Rejects values other than {"type": "ephemeral", "ttl"}.
bool has_cache_control(const Fields& fields);

}  // namespace attend::serve
