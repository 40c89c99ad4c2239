// Conversations as clients send them, brought into the form that a template knows.
#pragma once

#include "attend/text/chat_template/values/value.h"

namespace attend::chat_template {

// What a template makes of a message's content.
struct ContentForms {
  bool texts = true;   // "content": "..."
  bool parts = false;  // "content": [{"type": "text", "text": "..."}]
};

// Changes `messages` in place: contents into a form that the template takes, arguments of tool calls from
// JSON texts into objects. Roles that templates are written for count as text of the template, since some
// spell special tokens with them. Complains about what is no list of messages.
void prepare_messages(const Value& messages, ContentForms forms);

}  // namespace attend::chat_template
