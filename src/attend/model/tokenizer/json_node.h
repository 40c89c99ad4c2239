// A value of a JSON file that knows where it stands, so that errors name the file and the field.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "attend/base/error.h"

namespace attend::tokenizer {

using Json = nlohmann::json;

// Reads and parses a file. Error(kNotFound) if it can not be read, Error(kCorruptFile) if it is not JSON.
Json read_json_file(const std::filesystem::path& path);

class JsonNode {
 public:
  // `value` and `file` outlive the node. `file` is how messages call the file.
  JsonNode(const Json& value, const std::string& file) : value_(&value), file_(&file) {}

  const Json& value() const { return *value_; }
  // "tokenizer.json: model.merges[3]"
  std::string where() const;

  // A field of an object; Error(kCorruptFile) if it is missing or null.
  JsonNode at(std::string_view key) const;
  // A field of an object, or nothing if it is missing or null.
  std::optional<JsonNode> find(std::string_view key) const;
  // An element of an array.
  JsonNode at(size_t index) const;
  // Elements of the array; Error(kCorruptFile) if it is none.
  size_t array_size() const;
  // Fields of the object; Error(kCorruptFile) if it is none.
  size_t object_size() const;

  // The value itself; Error(kCorruptFile) if it is of another type.
  const std::string& string() const;
  bool boolean() const;
  int32_t token_id() const;    // 0 <= id < 2^31 - 1
  char32_t character() const;  // a string of one character
  bool boolean_or(std::string_view key, bool missing) const;

  // Refuses this value: kCorruptFile for what contradicts the format, kUnsupported for what attend lacks.
  template <class... Parts>
  [[noreturn]] void corrupt(const Parts&... parts) const {
    fail(ErrorCode::kCorruptFile, where(), ": ", parts...);
  }
  template <class... Parts>
  [[noreturn]] void unsupported(const Parts&... parts) const {
    fail(ErrorCode::kUnsupported, where(), ": ", parts...);
  }

 private:
  JsonNode(const Json& value, const std::string& file, std::string path)
      : value_(&value), file_(&file), path_(std::move(path)) {}

  const Json* value_;
  const std::string* file_;
  std::string path_;
};

}  // namespace attend::tokenizer
