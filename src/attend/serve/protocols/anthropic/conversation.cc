#include "attend/serve/protocols/anthropic/conversation.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attend/serve/protocols/answer_format.h"
#include "attend/serve/protocols/anthropic/signature.h"
#include "attend/serve/protocols/fields/image_fields.h"

namespace attend::serve {
namespace {

// Texts joined by line breaks.
class JoinedText {
 public:
  void add(std::string_view text) {
    if (text_) *text_ += '\n';
    if (!text_) text_.emplace();
    *text_ += text;
  }
  bool has_text() const { return text_.has_value(); }
  std::string take() { return std::exchange(text_, std::nullopt).value_or(""); }

 private:
  std::optional<std::string> text_;
};

// A content block, or a content that is a string, which is short for one block of text.
struct ContentBlock {
  std::string where;
  const Json& json;
};

struct ConversationTurn {
  std::string role, where;
  std::vector<ContentBlock> blocks;
};

std::string indexed(const std::string& where, size_t index) {
  return where + "[" + std::to_string(index) + "]";
}

[[noreturn]] void reject_block(const std::string& where, const std::string& type, std::string_view expected) {
  struct Row {
    std::string_view type, why;
  };
  static constexpr Row kRows[] = {{"image", "images are supported in messages of the user only"},
                                  {"document", "documents are not supported; send their text"},
                                  {"search_result", "search results are not supported; send their text"}};
  for (const Row& row : kRows)
    if (row.type == type) reject_unsupported(where + ".type", "\"", type, "\": ", row.why);
  reject_unsupported(where + ".type", excerpt(type), " is not supported here; expected ", expected);
}

void add_blocks(const std::string& where, const Json& content, std::vector<ContentBlock>& blocks) {
  if (content.is_string()) {
    blocks.push_back({where, content});
    return;
  }
  if (!content.is_array())
    reject(where, where, " ", excerpt(content), ": expected a string or a list of blocks");
  for (size_t i = 0; i < content.size(); ++i) blocks.push_back({indexed(where, i), content[i]});
}

std::string required_text(const Fields& fields, const char* key) {
  const auto value = fields.string(key);
  if (!value) reject(fields.name(key), fields.name(key), ": missing; expected a string");
  return *value;
}

class ConversationReader {
 public:
  Conversation read(const Fields& fields) {
    if (const Json* system = fields.find("system"))
      add_message("system", text_of("system", *system, R"("text")"));
    const Json* messages = fields.find("messages");
    if (!messages || !messages->is_array() || messages->empty())
      reject("messages", "messages: expected a list of at least one message");
    for (const ConversationTurn& turn : turns(*messages)) add_turn(turn);
    require_results("the end of messages");
    end();
    return std::move(conversation_);
  }

 private:
  struct OpenCall {
    std::string name;
    size_t position;  // among all calls
  };

  static std::vector<ConversationTurn> turns(const Json& messages) {
    std::vector<ConversationTurn> turns;
    for (size_t i = 0; i < messages.size(); ++i) {
      const std::string where = indexed("messages", i);
      const Fields fields(messages[i], where + ".");
      const std::string role = required_text(fields, "role");
      if (role != "user" && role != "assistant" && role != "system")
        reject(where + ".role", where, ".role ", excerpt(role),
               ": expected \"user\", \"assistant\" or \"system\"");
      const Json* content = fields.find("content");
      if (!content)
        reject(where + ".content", where, ".content: missing; expected a string or a list of blocks");
      if (turns.empty() || turns.back().role != role) turns.push_back({role, where, {}});
      add_blocks(where + ".content", *content, turns.back().blocks);
    }
    return turns;
  }

  void add_turn(const ConversationTurn& turn) {
    if (turn.role == "assistant") return assistant_turn(turn);
    if (turn.role == "user") return user_turn(turn);
    JoinedText text;
    for (const ContentBlock& block : turn.blocks) text.add(text_block(block, R"("text")"));
    add_message("system", text.take());
  }

  void user_turn(const ConversationTurn& turn) {
    constexpr std::string_view kTypes = R"("text", "image" or "tool_result")";
    JoinedText text;
    Json parts = Json::array();  // texts and images, if there are images
    const auto add_text_part = [&] {
      if (text.has_text()) parts.push_back({{"type", "text"}, {"text", text.take()}});
    };
    for (const ContentBlock& block : turn.blocks) {
      const std::string type = type_of(block);
      if (type == "image") {
        add_text_part();
        conversation_.images.push_back(image(block));
        parts.push_back(image_part());
      } else if (type != "tool_result") {
        text.add(text_block(block, kTypes));
      } else {
        if (text.has_text() || !parts.empty())
          reject(block.where, block.where,
                 ": a tool_result after a text or an image; expected results first");
        add_result(block);
      }
    }
    require_results(turn.where);
    if (parts.empty()) {
      if (text.has_text()) add_message("user", text.take());
      return;
    }
    add_text_part();
    conversation_.messages.push_back({{"role", "user"}, {"content", std::move(parts)}});
  }

  std::string image(const ContentBlock& block) {
    const Fields fields = checked(block);
    const Json* source = fields.find("source");
    if (!source) reject(fields.name("source"), fields.name("source"), ": missing; expected an object");
    const Fields inner(*source, fields.name("source") + ".");
    const std::string type = required_text(inner, "type");
    if (type == "url") return read_image_url(inner.name("url"), required_text(inner, "url"));
    if (type != "base64")
      reject_unsupported(inner.name("type"), excerpt(type), " is not supported; expected \"base64\"");
    inner.string("media_type");  // the file's first bytes determine its format
    return read_base64_image(inner.name("data"), required_text(inner, "data"));
  }

  void assistant_turn(const ConversationTurn& turn) {
    constexpr std::string_view kTypes = R"("text", "tool_use", "thinking" or "redacted_thinking")";
    require_results(turn.where);
    answered_.clear();
    JoinedText text, reasoning;
    Json calls = Json::array();
    for (const ContentBlock& block : turn.blocks) {
      const std::string type = type_of(block);
      if (type == "thinking" || type == "redacted_thinking")
        reasoning.add(thinking(block, type));
      else if (type == "tool_use")
        calls.push_back(call(block));
      else
        text.add(text_block(block, kTypes));
    }
    Json message = {{"role", "assistant"}, {"content", text.take()}};
    if (reasoning.has_text()) message["reasoning_content"] = reasoning.take();
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    conversation_.messages.push_back(std::move(message));
  }

  void add_result(const ContentBlock& block) {
    const Fields fields = checked(block);
    const std::string id = required_text(fields, "tool_use_id");
    if (answered_.contains(id))
      reject_with_code(tool_error::kDuplicateResult, fields.name("tool_use_id"), fields.name("tool_use_id"),
                       " ", excerpt(id), ": another block is the result of this tool_use");
    const auto call = calls_.find(id);
    if (call == calls_.end())
      reject_with_code(tool_error::kNoCall, fields.name("tool_use_id"), fields.name("tool_use_id"), " ",
                       excerpt(id), ": expected the id of a tool_use in the preceding message");
    const Json* content = fields.find("content");
    std::string text = content ? text_of(fields.name("content"), *content, R"("text")") : "";
    // Templates have no field for failed calls.
    if (fields.boolean("is_error").value_or(false)) text = "Error: " + text;
    conversation_.messages.push_back(
        {{"role", "tool"}, {"tool_call_id", id}, {"name", call->second.name}, {"content", std::move(text)}});
    calls_.erase(call);
    answered_.insert(id);
  }

  Json call(const ContentBlock& block) {
    const Fields fields = checked(block);
    const std::string id = required_text(fields, "id"), name = required_text(fields, "name");
    const Json* input = fields.find("input");
    if (!input || !input->is_object())
      reject_with_code(tool_error::kInvalidCall, fields.name("input"), fields.name("input"), " ",
                       input ? excerpt(*input) : "missing", ": expected an object");
    if (name.empty())
      reject_with_code(tool_error::kInvalidCall, fields.name("name"), fields.name("name"),
                       " \"\": expected the name of a tool");
    if (!calls_.emplace(id, OpenCall{name, num_calls_++}).second)
      reject_with_code(tool_error::kDuplicateCall, fields.name("id"), fields.name("id"), " ", excerpt(id),
                       ": duplicate in this message");
    return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", *input}}}};
  }

  std::string thinking(const ContentBlock& block, const std::string& type) {
    const Fields fields = checked(block);
    const char* const key = type == "thinking" ? "signature" : "data";
    const std::string text = type == "thinking" ? required_text(fields, "thinking") : "";
    auto signed_text = signed_thinking(text, required_text(fields, key));
    if (!signed_text)
      reject(fields.name(key), fields.name(key), ": not from this server, or of another text; expected the ",
             type, " block as it was received");
    return std::move(*signed_text);
  }

  std::string type_of(const ContentBlock& block) const {
    if (block.json.is_string()) return "text";
    return required_text(Fields(block.json, block.where + "."), "type");
  }

  std::string text_block(const ContentBlock& block, std::string_view expected) {
    if (block.json.is_string()) return block.json.get<std::string>();
    if (const std::string type = type_of(block); type != "text") reject_block(block.where, type, expected);
    return required_text(checked(block), "text");
  }

  std::string text_of(const std::string& where, const Json& content, std::string_view expected) {
    std::vector<ContentBlock> blocks;
    add_blocks(where, content, blocks);
    JoinedText text;
    for (const ContentBlock& block : blocks) text.add(text_block(block, expected));
    return text.take();
  }

  Fields checked(const ContentBlock& block) {
    Fields fields(block.json, block.where + ".");
    conversation_.has_cache_control |= has_cache_control(fields);
    return fields;
  }

  void add_message(const char* role, std::string text) {
    conversation_.messages.push_back({{"role", role}, {"content", std::move(text)}});
  }

  void require_results(const std::string& where) const {
    if (calls_.empty()) return;
    const auto first =
        std::ranges::min_element(calls_, {}, [](const auto& call) { return call.second.position; });
    reject_with_code(tool_error::kNoResult, where, where, ": the tool_use ", excerpt(first->first),
                     " has no tool_result; expected one in the next message");
  }

  // An assistant's text at the end is continued, unless it is blank.
  void end() {
    Json& messages = conversation_.messages;
    if (messages.empty() || messages.back()["role"] != "assistant") return;
    const std::string text = messages.back()["content"].get<std::string>();
    if (text.find_first_not_of(" \n\t\r") == std::string::npos) {
      messages.erase(messages.size() - 1);
      return;
    }
    conversation_.continued = text;
    conversation_.ends_with_user = false;
  }

  Conversation conversation_;
  // Calls of the preceding assistant's turn without a result, by id.
  std::unordered_map<std::string, OpenCall> calls_;
  std::set<std::string> answered_;  // ids of the others
  size_t num_calls_ = 0;
};

}  // namespace

bool has_cache_control(const Fields& fields) {
  const Json* given = fields.find("cache_control");
  if (!given) return false;
  const std::string where = fields.name("cache_control");
  const Fields inner(*given, where + ".");
  if (inner.string("type").value_or("") != "ephemeral")
    reject(where + ".type", where, " ", excerpt(*given), ": expected the type \"ephemeral\"");
  if (const auto ttl = inner.string("ttl"); ttl && *ttl != "5m" && *ttl != "1h")
    reject(where + ".ttl", where, ".ttl ", excerpt(*ttl), ": expected \"5m\" or \"1h\"");
  return true;
}

Conversation read_conversation(const Fields& fields) { return ConversationReader().read(fields); }

}  // namespace attend::serve
