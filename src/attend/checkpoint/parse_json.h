// attend's only JSON parser. It is strict, takes time linear in the text, and limits the depth of nesting.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace attend {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // keys are in file order; lookup is linear

// Deeper than any file that attend reads. Printing and comparing values needs stack for each level.
inline constexpr int kMaxJsonDepth = 64;

// Parses the whole `text`; `file` is its name in errors. Rejects a key that occurs twice in one object, which
// JSON leaves undefined, and nesting deeper than kMaxJsonDepth. Throws Error(kCorruptFile) with the line and
// column where parsing ended.
Json parse_json(std::string_view text, const std::string& file);
// Whole numbers of more than 64 bits: the float next to them, or a binary value with their digits.
enum class BigIntegers { kAsFloat, kAsBinary };
OrderedJson parse_ordered_json(std::string_view text, const std::string& file,
                               BigIntegers big_integers = BigIntegers::kAsFloat);

// Returns whether `value` is this string.
bool is_string(const Json& value, std::string_view text);

// Start of a value's JSON text, for messages.
std::string excerpt(const Json& value);
std::string excerpt(const OrderedJson& value);
inline std::string excerpt(const std::string& value) { return excerpt(Json(value)); }

// Abbreviates the middle of a long text, without splitting characters.
std::string shorten(const std::string& text, size_t max_bytes);

}  // namespace attend
