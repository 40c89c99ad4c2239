// Converts a conversation from the form that clients send to the form that a template expects.
#pragma once

#include <string_view>

#include "attend/text/chat_template/values/value.h"

namespace attend::chat_template {

// Forms of a message's content that a template supports.
struct ContentForms {
  bool texts = true;   // "content": "..."
  bool parts = false;  // "content": [{"type": "text", "text": "..."}]
  // Reasoning is a part of the content: {"type": "thinking", "thinking": "..."}.
  bool thinking = false;
};

// Forms of an assistant's calls that a template supports.
struct CallForms {
  bool text_arguments = false;  // arguments are JSON text, instead of an object
  // Content of a message with calls but without a text, which clients send in both forms or omit. Some
  // templates omit the calls, fail, or print more for the other.
  enum class Empty { kAny, kText, kNull };
  Empty empty = Empty::kAny;
  bool separates_text = false;  // a message with a text and calls becomes two
  // Texts of the user directly after a tool's result belong to the result: the template rejects a message of
  // their own, which Anthropic's API allows.
  bool joins_user_text = false;
  bool single = false;  // the template rejects two calls in one message
};

// Adds the optional fields that tools lack: descriptions and parameters, empty. Returns true if there were
// any.
bool complete_tools(const Value& tools);

// Names of an assistant's earlier reasoning in messages.
inline constexpr std::string_view kReasoningNames[] = {"reasoning_content", "reasoning", "thinking"};

// Changes `messages` in place: contents and calls to a form that the template supports (arguments are an
// empty object for no text and null), and reasoning to a part of the content or to `reasoning_name`, the name
// that the template reads, unless the message has it ("" if the template reads none). Roles that templates
// usually check count as text of the template, since some templates build special tokens from them. Throws
// TemplateError if `messages` is not a list of objects.
void prepare_messages(const Value& messages, ContentForms forms, CallForms calls,
                      std::string_view reasoning_name);

}  // namespace attend::chat_template
