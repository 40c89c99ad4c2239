// Fields of a JSON request, read strictly: a refusal names the field, its value and what would be accepted.
#pragma once

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "attend/checkpoint/parse_json.h"

namespace attend::serve {

// Keeps the order of keys: templates print the schemas of tools.
using Json = OrderedJson;

// What a client did wrong, or can not have. Becomes {"error": {message, type, param, code}}.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param;  // empty: none
  std::string code;   // empty: none
};

template <class... Parts>
[[noreturn]] void refuse(std::string param, const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw ApiError{400, message.str(), std::move(param), {}};
}

// Good, and not to be had here.
template <class... Parts>
[[noreturn]] void refuse_unsupported(std::string param, const Parts&... parts) {
  std::ostringstream message;
  message << param << ": ";
  (message << ... << parts);
  throw ApiError{400, message.str(), std::move(param), "unsupported"};
}

// As parse_ordered_json. Throws ApiError for what that refuses and for what is no JSON object.
Json parse_body(const std::string& body);

// An object whose fields are asked for one by one. A field that is null counts as absent: clients send such.
class Fields {
 public:
  // `where`: what stands before the names of fields in messages, "sampling_params." say.
  explicit Fields(const Json& object, std::string where = {});

  const Json* find(const std::string& key) const;
  bool has(const std::string& key) const { return find(key) != nullptr; }
  std::string name(const std::string& key) const { return where_ + key; }

  std::optional<double> number(const std::string& key) const;
  std::optional<int64_t> integer(const std::string& key, int64_t lowest, int64_t highest) const;
  std::optional<bool> boolean(const std::string& key) const;
  std::optional<std::string> string(const std::string& key) const;
  // A string, or a list of strings.
  std::vector<std::string> strings(const std::string& key) const;
  std::vector<int32_t> token_ids(const std::string& key) const;
  // A text for headers and logs: at most 200 characters of ASCII that can be seen.
  std::optional<std::string> id(const std::string& key) const;

  // What the object holds, null excepted, and nobody has asked for.
  std::vector<std::string> unread() const;

 private:
  const Json& object_;
  std::string where_;
  mutable std::vector<std::string> read_fields_;
};

// A list of token ids: whole numbers from 0.
std::vector<int32_t> read_token_ids(const Json& list, const std::string& param);

}  // namespace attend::serve
