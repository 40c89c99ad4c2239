// The one place where attend parses JSON: strictly, in time that grows with the text alone, and never deeper
// than any file it reads.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace attend {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // its keys keep their order; finding one reads them all

// Deeper than any file that attend reads; printing and comparing values takes stack for each level.
inline constexpr int kMaxJsonDepth = 64;

// Parses `text`, all of it; `file` is how errors call it. Refuses a key that occurs twice in one object,
// which JSON leaves open and readers resolve differently, and what is nested deeper than kMaxJsonDepth.
// Throws Error(kCorruptFile) with the line and column where parsing ended.
Json parse_json(std::string_view text, const std::string& file);
// Whole numbers of more than 64 bits: the float next to them, or a binary value with their digits.
enum class BigIntegers { kAsFloat, kAsBinary };
OrderedJson parse_ordered_json(std::string_view text, const std::string& file,
                               BigIntegers big_integers = BigIntegers::kAsFloat);

// Whether `value` is this string.
bool is_string(const Json& value, std::string_view text);

// The start of a value as it stands in the file, for messages.
std::string excerpt(const Json& value);
std::string excerpt(const OrderedJson& value);
inline std::string excerpt(const std::string& value) { return excerpt(Json(value)); }

// The middle of a long text left out, between characters.
std::string shorten(const std::string& text, size_t max_bytes);

}  // namespace attend
