// attend's only JSON parser. It is strict, takes time linear in the text, and limits the depth of nesting.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

namespace attend {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // keys are in file order; lookup is linear

// Deeper than any file that attend reads. Printing and comparing values needs stack for each level.
inline constexpr int kMaxJsonDepth = 64;

// Limit of the arguments of calls, which models write.
inline constexpr int kMaxArgumentDepth = 180;

struct JsonRules {
  // Integers of more than 64 bits become binary values with their digits, instead of the floats next to them.
  bool exact_integers = false;
  // Members that contain a conversation with a model, and members below them with the arguments of calls.
  // Arguments may be nested kMaxArgumentDepth levels deep, and of equal keys the last one counts, as in
  // Python.
  std::span<const std::string_view> conversation = {}, arguments = {};
};
inline constexpr std::string_view kConversationKeys[] = {"messages", "input"},
                                  kArgumentKeys[] = {"arguments", "input"};
inline constexpr JsonRules kConversationJson = {
    .exact_integers = true, .conversation = kConversationKeys, .arguments = kArgumentKeys};

// Parses the whole `text`; `file` is its name in errors. Rejects a key that occurs twice in one object, which
// JSON leaves undefined, and nesting deeper than kMaxJsonDepth. Throws Error(kCorruptFile) with the line and
// column where parsing ended. `rules` are exceptions.
Json parse_json(std::string_view text, const std::string& file);
OrderedJson parse_ordered_json(std::string_view text, const std::string& file, const JsonRules& rules = {});

// Returns `value` without spaces, with all digits of exact integers. Invalid UTF-8 is replaced.
std::string json_text(const OrderedJson& value);

// Returns whether `value` is this string.
bool is_string(const Json& value, std::string_view text);

// Start of a value's JSON text, for messages.
std::string excerpt(const Json& value);
std::string excerpt(const OrderedJson& value);
inline std::string excerpt(const std::string& value) { return excerpt(Json(value)); }

// Abbreviates the middle of a long text, without splitting characters.
std::string shorten(const std::string& text, size_t max_bytes);

}  // namespace attend
