// Converts a conversation from the form that clients send to the form that a template expects.
#pragma once

#include "attend/text/chat_template/values/value.h"

namespace attend::chat_template {

// Forms of a message's content that a template supports.
struct ContentForms {
  bool texts = true;   // "content": "..."
  bool parts = false;  // "content": [{"type": "text", "text": "..."}]
};

// Changes `messages` in place: contents to a form that the template supports, and arguments of tool calls
// from JSON text to objects, an empty one for no text and null. Roles that templates usually check count as
// text of the template, since some templates build special tokens from them. Throws TemplateError if
// `messages` is not a list of objects.
void prepare_messages(const Value& messages, ContentForms forms);

}  // namespace attend::chat_template
