// Fields of a JSON request, read strictly: an error names the field, its value and what is accepted.
#pragma once

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "attend/checkpoint/parse_json.h"

namespace attend::serve {

// Keeps the order of keys, since chat templates print the schemas of tools.
using Json = OrderedJson;

// Error of a client's request. Becomes {"error": {message, type, param, code}}.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param;  // empty: none
  std::string code;   // empty: none
};

template <class... Parts>
[[noreturn]] void reject(std::string param, const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw ApiError{400, message.str(), std::move(param), {}};
}

// Like reject(), with a code by which clients recognize the error.
template <class... Parts>
[[noreturn]] void reject_with_code(std::string_view code, std::string param, const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw ApiError{400, message.str(), std::move(param), std::string(code)};
}

// Rejects a valid request that the server does not support.
template <class... Parts>
[[noreturn]] void reject_unsupported(std::string param, const Parts&... parts) {
  std::ostringstream message;
  message << param << ": ";
  (message << ... << parts);
  throw ApiError{400, message.str(), std::move(param), "unsupported"};
}

// Default of the limit of list elements in one field of a request. Numbers do not count, so that prompts of
// token ids are limited by the context only.
inline constexpr size_t kMaxRequestItems = 32768;

// Returns no value if `value` is not a number. An integer of more than 64 bits is a binary value with its
// digits, see kConversationJson.
std::optional<double> as_number(const Json& value);

// Like parse_ordered_json() with kConversationJson, but throws ApiError for invalid JSON, for JSON that is
// not an object, and for a field with more list elements than `max_items`, at any depth.
Json parse_body(const std::string& body, size_t max_items = kMaxRequestItems);

// Object with fields that are read by name. A null field counts as absent, since some clients send it.
class Fields {
 public:
  // `where`: prefix of field names in messages, for example "sampling_params.".
  explicit Fields(const Json& object, std::string where = {});

  const Json* find(const std::string& key) const;
  bool has(const std::string& key) const { return find(key) != nullptr; }
  std::string name(const std::string& key) const { return where_ + key; }

  std::optional<double> number(const std::string& key) const;
  std::optional<int64_t> integer(const std::string& key, int64_t lowest, int64_t highest) const;
  std::optional<bool> boolean(const std::string& key) const;
  std::optional<std::string> string(const std::string& key) const;
  // Reads a string or a list of strings.
  std::vector<std::string> strings(const std::string& key) const;
  std::vector<int32_t> token_ids(const std::string& key) const;
  // Reads a text for headers and logs: at most 200 printable ASCII characters.
  std::optional<std::string> id(const std::string& key) const;

  // Returns true if this field was looked up, present or not.
  bool has_read(const std::string& key) const;
  // Returns the keys of non-null fields that were not read.
  std::vector<std::string> unknown() const;

 private:
  const Json& object_;
  std::string where_;
  mutable std::vector<std::string> read_fields_;
};

// Returns true for an object whose "type" is this string.
bool has_type(const Json& value, std::string_view type);

// Reads a list of token ids: integers from 0.
std::vector<int32_t> read_token_ids(const Json& list, const std::string& param);

}  // namespace attend::serve
