#include "attend/text/chat_template/conversation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "attend/text/chat_template/values/print.h"

namespace attend::chat_template {
namespace {

constexpr std::string_view kRoles[] = {"system", "developer", "user",    "assistant",   "tool",
                                       "model",  "function",  "ipython", "observation", "environment"};

Value* find_in(Dict& dict, std::string_view key) {
  const Value* found = dict.find(Text(key));
  return const_cast<Value*>(found);
}

// Returns the joined text of a content's parts, if all parts are texts.
std::optional<Text> joined_parts(const List& parts) {
  Text whole;
  for (const Value& part : parts.items) {
    const Value* text = part.dict() ? part.dict()->find(Text("text")) : nullptr;
    if (!text || !text->text()) return std::nullopt;
    if (!whole.empty()) whole.append("\n");
    whole.append(*text->text());
  }
  return whole;
}

void prepare_content(Value& content, ContentForms forms) {
  if (content.list() && !forms.parts)
    if (auto whole = joined_parts(*content.list())) content = std::move(*whole);
  if (content.text() && !forms.texts)
    content = Value::list({Value::dict({{Text("type"), Text("text")}, {Text("text"), content}})});
}

bool is_blank(const Text& text) { return text.bytes().find_first_not_of(" \t\r\n") == std::string::npos; }

void prepare_arguments(Value& arguments) {
  if (arguments.is_none() || (arguments.text() && is_blank(*arguments.text()))) {
    arguments = Value::dict({});
    return;
  }
  if (!arguments.text()) return;
  try {
    const Value object = from_model_json(arguments.text()->bytes());
    if (object.dict()) arguments = object;
    if (object.is_none()) arguments = Value::dict({});
  } catch (const TemplateError&) {
    // Arguments that are not JSON, as written by a model, stay text.
  }
}

void prepare_tool_call(const Value& call, CallForms forms) {
  if (!call.dict()) return;
  Value* function = find_in(*call.dict(), "function");
  if (!function || !function->dict()) return;
  Value* arguments = find_in(*function->dict(), "arguments");
  if (!arguments) {
    function->dict()->items.emplace_back(Text("arguments"), Value::dict({}));
    arguments = find_in(*function->dict(), "arguments");
  }
  if (!forms.text_arguments) return prepare_arguments(*arguments);
  // A text stays as the client wrote it.
  Value object = *arguments;
  prepare_arguments(object);
  if (object.dict() && !(arguments->text() && !object.dict()->items.empty()))
    *arguments = to_json(object, {});
}

void prepare_empty_content(Dict& message, CallForms::Empty empty) {
  Value* content = find_in(message, "content");
  if (!content) {
    message.items.emplace_back(Text("content"), Value::none());
    content = find_in(message, "content");
  }
  if (empty == CallForms::Empty::kAny) return;
  const bool takes_blanks = empty == CallForms::Empty::kNull;
  if (!content->is_none() &&
      !(content->text() && (takes_blanks ? is_blank(*content->text()) : content->text()->empty())))
    return;
  *content = empty == CallForms::Empty::kNull ? Value::none() : Value(Text());
}

// Templates print an absent or null content of an answer without calls as "None", or fail.
void prepare_empty_answer(Dict& message) {
  Value* content = find_in(message, "content");
  if (!content)
    message.items.emplace_back(Text("content"), Text());
  else if (content->is_none())
    *content = Text();
}

std::optional<Text> whole_text(const Value* content) {
  if (content && content->text()) return *content->text();
  return content && content->list() ? joined_parts(*content->list()) : std::nullopt;
}

// Appends texts of the user to the results of tools that they follow.
void join_user_texts(List& messages) {
  const auto role_of = [](const Value& message) -> std::string_view {
    if (!message.dict()) fail_template("messages: needs objects");
    const Value* role = find_in(*message.dict(), "role");
    return role && role->text() ? std::string_view(role->text()->bytes()) : "";
  };
  std::vector<Value> all;
  for (const Value& message : messages.items) {
    const bool follows = role_of(message) == "user" && !all.empty() && role_of(all.back()) == "tool";
    const auto text = follows ? whole_text(find_in(*message.dict(), "content")) : std::nullopt;
    Value* result = text ? find_in(*all.back().dict(), "content") : nullptr;
    auto joined = whole_text(result);
    if (!joined) {
      all.push_back(message);
      continue;
    }
    joined->append("\n\n");
    joined->append(*text);
    *result = std::move(*joined);
  }
  messages.items = std::move(all);
}

// Makes two messages of one with a text and calls, for templates that omit its calls.
void separate_calls(List& messages) {
  std::vector<Value> all;
  for (const Value& message : messages.items) {
    if (!message.dict()) fail_template("messages: needs objects");
    Value* content = find_in(*message.dict(), "content");
    const Value* calls = find_in(*message.dict(), "tool_calls");
    const bool has_text = content && ((content->text() && !is_blank(*content->text())) ||
                                      (content->list() && !content->list()->items.empty()));
    if (has_text && calls && calls->list() && !calls->list()->items.empty()) {
      std::vector<std::pair<Value, Value>> items = message.dict()->items;
      std::erase_if(items, [](const auto& item) { return item.first.text()->bytes() == "tool_calls"; });
      all.push_back(Value::dict(std::move(items)));
      *content = Value::none();
    }
    all.push_back(message);
  }
  messages.items = std::move(all);
}

// Returns the reasoning of a message under any name, or null.
const Value* find_reasoning(Dict& message) {
  for (const std::string_view name : kReasoningNames)
    if (const Value* given = find_in(message, name); given && given->text()) return given;
  return nullptr;
}

void prepare_reasoning(Dict& message, std::string_view name) {
  if (find_in(message, name)) return;
  if (const Value* given = find_reasoning(message)) message.items.emplace_back(Text(name), *given);
}

Value make_part(std::string_view type, const Value& text) {
  return Value::dict({{Text("type"), Text(type)}, {Text(type), text}});
}

// Adds the reasoning in front of the content.
void add_thinking_part(Dict& message) {
  const Value* reasoning = find_reasoning(message);
  Value* content = find_in(message, "content");
  if (!reasoning || !content) return;
  std::vector<Value> parts = {make_part("thinking", *reasoning)};
  if (content->list())
    parts.insert(parts.end(), content->list()->items.begin(), content->list()->items.end());
  else if (content->text() && !content->text()->empty())
    parts.push_back(make_part("text", *content));
  *content = Value::list(std::move(parts));
}

}  // namespace

bool complete_tools(const Value& tools) {
  bool added = false;
  // Returns the field of an object, or null for another value.
  const auto complete = [&](const Value* object, const char* key, const Value& missing) -> Value* {
    if (!object || !object->dict()) return nullptr;
    Value* found = find_in(*object->dict(), key);
    if (!found || found->is_none()) {
      added = true;
      if (found) return *found = missing, found;
      object->dict()->items.emplace_back(Text(key), missing);
      found = find_in(*object->dict(), key);
    }
    return found;
  };
  if (!tools.list()) return false;
  for (const Value& tool : tools.list()->items) {
    const Value* function = tool.dict() ? find_in(*tool.dict(), "function") : nullptr;
    if (!function) function = &tool;
    complete(function, "description", Text());
    const Value empty = Value::dict({{Text("type"), Text("object")}, {Text("properties"), Value::dict({})}});
    const Value* properties =
        complete(complete(function, "parameters", empty), "properties", Value::dict({}));
    if (!properties || !properties->dict()) continue;
    for (const auto& [name, property] : properties->dict()->items) complete(&property, "description", Text());
  }
  return added;
}

void prepare_messages(const Value& messages, ContentForms forms, CallForms call_forms,
                      std::string_view reasoning_name) {
  if (!messages.list()) fail_template("messages: needs a list");
  if (call_forms.joins_user_text) join_user_texts(*messages.list());
  if (call_forms.separates_text) separate_calls(*messages.list());
  for (const Value& message : messages.list()->items) {
    if (!message.dict()) fail_template("messages: needs objects");
    Value* role = find_in(*message.dict(), "role");
    if (role && role->text() &&
        std::find(std::begin(kRoles), std::end(kRoles), role->text()->bytes()) != std::end(kRoles))
      *role = Text(role->text()->bytes());
    const Value* calls = find_in(*message.dict(), "tool_calls");
    if (calls && calls->list() && !calls->list()->items.empty()) {
      for (const Value& call : calls->list()->items) prepare_tool_call(call, call_forms);
      prepare_empty_content(*message.dict(), call_forms.empty);
    } else if (role && role->text() && role->text()->bytes() == "assistant") {
      prepare_empty_answer(*message.dict());
    }
    if (Value* content = find_in(*message.dict(), "content")) prepare_content(*content, forms);
    if (forms.thinking)
      add_thinking_part(*message.dict());
    else if (!reasoning_name.empty())
      prepare_reasoning(*message.dict(), reasoning_name);
  }
}

}  // namespace attend::chat_template
