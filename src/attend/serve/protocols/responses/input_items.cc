#include "attend/serve/protocols/responses/input_items.h"

#include <fmt/format.h>

#include <initializer_list>
#include <set>
#include <unordered_map>
#include <utility>

#include "attend/serve/json/base64.h"
#include "attend/serve/protocols/answer_format.h"
#include "attend/serve/protocols/fields/image_fields.h"
#include "attend/serve/protocols/random_id.h"

namespace attend::serve {
namespace {

constexpr std::string_view kEncodedReasoning = "attend1.";  // prefix of encrypted_content

std::string required_string(const Fields& fields, const char* key) {
  const auto value = fields.string(key);
  if (!value) reject(fields.name(key), fields.name(key), ": missing; expected a string");
  return *value;
}

// Returns the text of one part of a message or of a tool's output.
std::string part_text(const Json& part, const std::string& where) {
  const Fields fields(part, where + ".");
  const std::string type = fields.string("type").value_or("");
  if (type == "input_text" || type == "output_text") return required_string(fields, "text");
  if (type == "refusal") return required_string(fields, "refusal");
  reject_unsupported(where + ".type", "parts of type ", excerpt(type),
                     " are not supported; expected \"input_text\", \"output_text\" or \"refusal\"");
}

// Reads a text or a list of parts. Returns the texts.
std::vector<std::string> read_content(const Fields& fields, const char* key) {
  const Json* content = fields.find(key);
  const std::string where = fields.name(key);
  if (content && content->is_string()) return {content->get<std::string>()};
  if (!content || !content->is_array())
    reject(where, where, content ? " " + excerpt(*content) : "", ": expected a string or a list of parts");
  std::vector<std::string> texts;
  for (size_t i = 0; i < content->size(); ++i)
    texts.push_back(part_text((*content)[i], fmt::format("{}[{}]", where, i)));
  return texts;
}

// Returns the URL of an image of the user; nothing for another part.
std::optional<std::string> find_image_url(const Json& part, const std::string& where) {
  if (!has_type(part, "input_image")) return std::nullopt;
  const Fields fields(part, where + ".");
  if (fields.has("file_id")) reject_unsupported(fields.name("file_id"), "not supported; expected image_url");
  return required_string(fields, "image_url");
}

// Content of a message in one form: a list of parts that are texts or images.
Json read_message_parts(const Fields& fields, const std::string& role) {
  const Json* content = fields.find("content");
  const auto text_part = [&](std::string text) {
    Json part = {{"type", role == "assistant" ? "output_text" : "input_text"}, {"text", std::move(text)}};
    if (role == "assistant") part["annotations"] = Json::array();
    return part;
  };
  Json parts = Json::array();
  if (!content || !content->is_array()) {
    for (std::string& text : read_content(fields, "content")) parts.push_back(text_part(std::move(text)));
    return parts;
  }
  for (size_t i = 0; i < content->size(); ++i) {
    const std::string where = fmt::format("{}[{}]", fields.name("content"), i);
    const auto url = role == "user" ? find_image_url((*content)[i], where) : std::nullopt;
    if (!url) {
      parts.push_back(text_part(part_text((*content)[i], where)));
      continue;
    }
    read_image_url(where + ".image_url", *url);
    parts.push_back({{"type", "input_image"}, {"detail", "auto"}, {"image_url", *url}});
  }
  return parts;
}

void read_message(Json& item, const Fields& fields) {
  const std::string role = required_string(fields, "role");
  if (role != "user" && role != "assistant" && role != "system" && role != "developer")
    reject(fields.name("role"), fields.name("role"), " ", excerpt(role),
           R"(: expected "user", "assistant", "system" or "developer")");
  item["content"] = read_message_parts(fields, role);
  item["status"] = "completed";
}

// Reads the strings of a call.
void read_call_fields(const Fields& fields, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (!fields.string(key))
      reject_with_code(tool_error::kInvalidCall, fields.name(key), fields.name(key),
                       ": missing; expected a string");
  if (fields.string("name")->empty())
    reject_with_code(tool_error::kInvalidCall, fields.name("name"), fields.name("name"),
                     " \"\": expected the name of a tool");
}

void read_call(Json& item, const Fields& fields) {
  read_call_fields(fields, {"call_id", "name", "arguments"});
  if (fields.has("namespace")) reject_unsupported(fields.name("namespace"), "not supported");
  // Arguments that max_output_tokens cut off are part of stored conversations.
  if (fields.string("status") == "incomplete") return;
  check_call_arguments(fields.name("arguments"), fields.find("arguments"));
  item["status"] = "completed";
}

void read_custom_call(Json&, const Fields& fields) { read_call_fields(fields, {"call_id", "name", "input"}); }

void read_output(Json&, const Fields& fields) {
  required_string(fields, "call_id");
  read_content(fields, "output");
}

// Returns the joined texts of a list of parts of one type.
std::string joined_parts(const Fields& fields, const char* key, std::string_view type) {
  const Json* parts = fields.find(key);
  if (!parts) return {};
  if (!parts->is_array())
    reject(fields.name(key), fields.name(key), " ", excerpt(*parts), ": expected a list of parts");
  std::string text;
  for (size_t i = 0; i < parts->size(); ++i) {
    const Fields part((*parts)[i], fmt::format("{}[{}].", fields.name(key), i));
    if (part.string("type") != type)
      reject(part.name("type"), part.name("type"), ": expected \"", type, "\"");
    if (i > 0) text += '\n';
    text += required_string(part, "text");
  }
  return text;
}

// Returns the text of a reasoning item, from its content, its encoded content or its summary.
std::string reasoning_text(const Fields& fields) {
  const std::string summary = joined_parts(fields, "summary", "summary_text");
  const std::string content = joined_parts(fields, "content", "reasoning_text");
  const std::string encoded = fields.string("encrypted_content").value_or("");
  if (!content.empty()) return content;
  if (encoded.empty()) return summary;
  const auto text = encoded.starts_with(kEncodedReasoning)
                        ? decode_base64(std::string_view(encoded).substr(kEncodedReasoning.size()))
                        : std::nullopt;
  if (!text)
    reject(fields.name("encrypted_content"), fields.name("encrypted_content"), " ", excerpt(encoded),
           ": expected the value of a reasoning item of this server");
  return *text;
}

void read_reasoning(Json& item, const Fields& fields) {
  reasoning_text(fields);
  if (!fields.has("summary")) item["summary"] = Json::array();
}

void read_reference(Json& item, const Fields& fields) {
  required_string(fields, "id");
  item["type"] = kItemReference;
}

struct ItemType {
  std::string_view type, id_prefix;
  // Checks an item and completes it.
  void (*read)(Json& item, const Fields& fields);
};
constexpr ItemType kItemTypes[] = {
    {"message", "msg_", read_message},
    {"function_call", "fc_", read_call},
    {"function_call_output", "fco_", read_output},
    {"custom_tool_call", "ctc_", read_custom_call},
    {"custom_tool_call_output", "ctco_", read_output},
    {"reasoning", "rs_", read_reasoning},
    {kItemReference, "", read_reference},
};

const ItemType& find_type(const Fields& fields) {
  std::string type = fields.string("type").value_or("");
  // Messages and references may omit their type.
  if (type.empty() && fields.has("role")) type = "message";
  if (type.empty() && fields.has("id")) type = kItemReference;
  std::string all;
  for (const ItemType& known : kItemTypes) {
    if (known.type == type) return known;
    all += fmt::format("{}\"{}\"", all.empty() ? "" : ", ", known.type);
  }
  if (type.empty()) reject(fields.name("type"), fields.name("type"), ": missing; expected one of ", all);
  reject_unsupported(fields.name("type"), "items of type ", excerpt(type),
                     " are not supported; expected one of ", all);
}

// Builds the messages of a chat from items in their order.
class Messages {
 public:
  Messages(const std::string& instructions, std::vector<std::string>& images)
      : system_(instructions), images_(images) {}

  void add(const Json& item, const std::string& where) {
    const Fields fields(item, where + ".");
    const std::string type = *fields.string("type");
    if (const auto id = fields.string("id"); id && !ids_.insert(*id).second)
      reject(fields.name("id"), fields.name("id"), " ", excerpt(*id),
             ": another item of the conversation has this id; with previous_response_id, expected new items");
    if (type == "message")
      add_message(fields);
    else if (type == "reasoning")
      add_reasoning(reasoning_text(fields));
    else if (type == "function_call")
      add_call(fields, *fields.string("arguments"));
    else if (type == "custom_tool_call")
      add_call(fields, json_text({{kCustomInput, *fields.string("input")}}));
    else if (type == kItemReference)
      throw ApiError{404,
                     fmt::format("{}id {}: no stored response has an output item with this id", where + ".",
                                 excerpt(*fields.string("id"))),
                     fields.name("id"), "item_not_found"};
    else
      add_output(fields, type);
  }

  Json finish() {
    for (const auto& [id, call] : calls_)
      if (!call.has_output)
        reject_with_code(tool_error::kNoResult, "input", "input: no output for the call of ", call.name,
                         " with call_id ", excerpt(id));
    // Templates expect a null content of a message that has only calls.
    for (Json& message : messages_)
      if (!message.contains("content"))
        message["content"] = message.contains("tool_calls") ? Json(nullptr) : Json("");
    if (!system_.empty()) {
      Json all = Json::array({{{"role", "system"}, {"content", system_}}});
      for (Json& message : messages_) all.push_back(std::move(message));
      messages_ = std::move(all);
    }
    return std::move(messages_);
  }

 private:
  struct Call {
    std::string name;
    std::string output_type;
    bool has_output = false;
  };

  void add_message(const Fields& fields) {
    const std::string role = *fields.string("role");
    if (role == "system" || role == "developer") return add_system(read_content(fields, "content"));
    Json content = Json::array();
    bool has_images = false;
    for (const Json& part : *fields.find("content")) {
      const auto url = find_image_url(part, fields.name("content"));
      if (!url) {
        content.push_back({{"type", "text"}, {"text", part_text(part, fields.name("content"))}});
        continue;
      }
      has_images = true;
      images_.push_back(read_image_url(fields.name("content"), *url));
      content.push_back(image_part());
    }
    if (content.size() == 1 && !has_images) content = Json(content[0]["text"]);
    if (content.empty()) content = "";
    if (role == "assistant")
      open_assistant("content")["content"] = std::move(content);
    else
      add_closed({{"role", role}, {"content", std::move(content)}});
  }

  // Joins all system messages at the start, since most templates support only one.
  void add_system(std::vector<std::string> texts) {
    for (const std::string& text : texts)
      if (messages_.empty())
        system_ += (system_.empty() ? "" : "\n\n") + text;
      else
        add_closed({{"role", "system"}, {"content", text}});
  }

  void add_reasoning(const std::string& text) {
    if (!text.empty()) open_assistant("reasoning_content")["reasoning_content"] = text;
  }

  void add_call(const Fields& fields, const std::string& arguments) {
    const std::string id = *fields.string("call_id"), name = *fields.string("name");
    if (!calls_.emplace(id, Call{name, *fields.string("type") + "_output"}).second)
      reject_with_code(tool_error::kDuplicateCall, fields.name("call_id"), fields.name("call_id"), " ",
                       excerpt(id), ": another call of the conversation has this id");
    open_assistant("tool_calls")["tool_calls"].push_back(
        {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
  }

  void add_output(const Fields& fields, const std::string& type) {
    const std::string id = *fields.string("call_id");
    const auto call = calls_.find(id);
    if (call == calls_.end())
      reject_with_code(tool_error::kNoCall, fields.name("call_id"), fields.name("call_id"), " ", excerpt(id),
                       ": no earlier call has this id");
    if (call->second.output_type != type)
      reject_with_code(tool_error::kNoCall, fields.name("type"), fields.name("type"), " ", excerpt(type),
                       ": expected \"", call->second.output_type, "\", as the call has another type");
    if (std::exchange(call->second.has_output, true))
      reject_with_code(tool_error::kDuplicateResult, fields.name("call_id"), fields.name("call_id"), " ",
                       excerpt(id), ": another item is the output of this call");
    std::string output;
    for (const std::string& text : read_content(fields, "output"))
      output += (output.empty() ? "" : "\n") + text;
    add_closed({{"role", "tool"}, {"tool_call_id", id}, {"name", call->second.name}, {"content", output}});
  }

  void add_closed(Json message) {
    messages_.push_back(std::move(message));
    is_open_ = false;
  }

  // Returns the assistant's message that a field belongs to. Reasoning, a text and calls, in this order, are
  // one message.
  Json& open_assistant(std::string_view field) {
    const auto has = [&](const char* key) { return messages_.back().contains(key); };
    const bool is_same =
        is_open_ && (field == "tool_calls" || (field == "content" && !has("content") && !has("tool_calls")));
    if (!is_same) messages_.push_back({{"role", "assistant"}});
    is_open_ = true;
    return messages_.back();
  }

  std::string system_;
  std::vector<std::string>& images_;
  Json messages_ = Json::array();
  bool is_open_ = false;  // the last message is the assistant's and may get more fields
  std::unordered_map<std::string, Call> calls_;
  std::set<std::string> ids_;
};

}  // namespace

Json read_items(const Json& input, const std::string& where) {
  Json items = input;
  if (input.is_string()) items = Json::array({{{"role", "user"}, {"content", input}}});
  if (!items.is_array() || items.empty())
    reject(where, where, " ", excerpt(input), ": expected a text or a list of at least one item");
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", where, i);
    const Fields fields(items[i], name + ".");
    const ItemType& type = find_type(fields);
    Json item = items[i];
    type.read(item, fields);
    item["type"] = type.type;
    if (!fields.has("id")) item["id"] = random_id(type.id_prefix);
    items[i] = std::move(item);
  }
  return items;
}

Json to_messages(const Json& items, size_t num_earlier, const std::string& instructions,
                 std::vector<std::string>& images) {
  Messages messages(instructions, images);
  for (size_t i = 0; i < items.size(); ++i)
    messages.add(items[i], i < num_earlier ? fmt::format("previous_response_id.items[{}]", i)
                                           : fmt::format("input[{}]", i - num_earlier));
  return messages.finish();
}

std::string encode_reasoning(std::string_view text) {
  std::string encoded(kEncodedReasoning);
  append_base64(text, encoded);
  return encoded;
}

}  // namespace attend::serve
