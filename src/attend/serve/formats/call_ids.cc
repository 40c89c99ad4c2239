// Ids of calls in conversations, in the form that a model was trained on.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>

#include "attend/serve/formats/tool_format.h"

namespace attend::serve {
namespace {

using CallIds = ToolFormat::CallIds;

constexpr size_t kNumCharacters = 9;
constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

bool has_nine_characters(std::string_view id) {
  return id.size() == kNumCharacters && id.find_first_not_of(kLetters) == id.npos;
}

// Returns nine letters and digits that depend on the text only, so that a prompt is the same in every turn.
// FNV-1a hash, with the finalizer of splitmix64.
std::string nine_characters(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  hash ^= hash >> 31;
  std::string id;
  for (size_t i = 0; i < kNumCharacters; ++i, hash /= kLetters.size()) id += kLetters[hash % kLetters.size()];
  return id;
}

std::string string_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::string written_call_id(CallIds form, std::string_view given, std::string_view tool, size_t number) {
  switch (form) {
    case CallIds::kNineCharacters:
      if (has_nine_characters(given)) return std::string(given);
      return nine_characters(given.empty() ? std::to_string(number) : given);
    case CallIds::kNameAndNumber:
      return "functions." + std::string(tool) + ":" + std::to_string(number);
    case CallIds::kAny:
      break;
  }
  return std::string(given);
}

std::string write_call_ids(const ToolFormat& format, const std::string& variables) {
  if (format.ids == CallIds::kAny) return variables;
  Json json = parse_ordered_json(variables, "the variables", kConversationJson);
  std::unordered_map<std::string, std::string> written;  // by the client's id
  std::deque<std::string> open;                          // of calls without a result
  size_t number = 0;
  for (Json& message : json.at("messages")) {
    if (const auto calls = message.find("tool_calls"); calls != message.end() && calls->is_array())
      for (Json& call : *calls) {
        const std::string given = string_in(call, "id"), tool = string_in(call.at("function"), "name");
        const std::string id = written_call_id(format.ids, given, tool, number++);
        call["id"] = id;
        written[given] = id;
        open.push_back(id);
      }
    if (string_in(message, "role") != "tool") continue;
    const std::string given = string_in(message, "tool_call_id");
    const auto found = written.find(given);
    const bool has_id = !given.empty() && found != written.end();
    if (!has_id && open.empty()) continue;
    const std::string id = has_id ? found->second : open.front();
    message["tool_call_id"] = id;
    std::erase(open, id);
  }
  return json_text(json);
}

}  // namespace attend::serve
