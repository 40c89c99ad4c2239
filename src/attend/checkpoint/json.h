// JSON files of a model directory, read strictly: every error names the file, the field, its value and what
// was expected.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "attend/base/error.h"
#include "attend/checkpoint/parse_json.h"

namespace attend {

// Larger than any config or index that attend reads.
inline constexpr size_t kMaxJsonFileBytes = size_t{16} << 20;
// Several times the size of the largest tokenizer.json.
inline constexpr size_t kMaxTokenizerFileBytes = size_t{128} << 20;

// Value of a JSON file, with its position for errors. Cheap to copy; copies and parts keep the file's values
// alive. A null field counts as absent. Accessors throw Error(kCorruptFile) for values that they reject.
class JsonNode {
 public:
  JsonNode(Json value, std::string file);
  // Reads a whole file. Throws the errors of read_file and parse_json.
  static JsonNode read(const std::filesystem::path& path, size_t max_bytes = kMaxJsonFileBytes);

  const Json& value() const { return *value_; }
  // "dir/tokenizer.json: model.merges[3]"
  std::string where() const;
  // Position of a field of this object, which may be absent.
  std::string where(std::string_view key) const;

  // Members of an object or elements of an array; rejects other values.
  std::optional<JsonNode> find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key).has_value(); }
  // True if the field is present, even if it is null.
  bool mentions(std::string_view key) const;
  JsonNode at(std::string_view key) const;
  JsonNode at(size_t index) const;
  size_t array_size() const;
  size_t object_size() const;

  // Returns the value. Rejects another type or a value out of range.
  const std::string& string() const;
  const std::string& character() const;  // a string of one character
  bool boolean() const;
  int integer(int lowest, int highest) const;
  double positive() const;   // above 0, within float32
  int32_t token_id() const;  // 0 <= id < 2^31 - 1

  // Returns a field's value. Functions without `find` also reject an absent field.
  int integer(std::string_view key, int lowest, int highest) const;
  double positive(std::string_view key) const;
  std::optional<int> find_integer(std::string_view key, int lowest, int highest) const;
  std::optional<double> find_positive(std::string_view key) const;
  std::optional<bool> find_boolean(std::string_view key) const;
  std::optional<std::string> find_string(std::string_view key) const;
  bool boolean_or(std::string_view key, bool missing) const { return find_boolean(key).value_or(missing); }

  // Rejects this value or a field, which may be absent. The error has position, value and expected values.
  [[noreturn]] void reject(std::string_view expected) const;
  [[noreturn]] void reject(std::string_view key, std::string_view expected) const;
  // Reject with another message: kCorruptFile for a violation of the format, kUnsupported for a missing
  // feature.
  template <class... Parts>
  [[noreturn]] void corrupt(const Parts&... parts) const {
    fail_at_node(ErrorCode::kCorruptFile, join(parts...));
  }
  template <class... Parts>
  [[noreturn]] void unsupported(const Parts&... parts) const {
    fail_at_node(ErrorCode::kUnsupported, join(parts...));
  }

 private:
  struct File {
    Json value;
    std::string name;
  };
  JsonNode(std::shared_ptr<const File> file, const Json& value, std::string path)
      : file_(std::move(file)), value_(&value), path_(std::move(path)) {}

  template <class... Parts>
  static std::string join(const Parts&... parts) {
    std::ostringstream text;
    (text << ... << parts);
    return text.str();
  }
  // Abbreviates the middle of long words, which quote the file.
  [[noreturn]] void fail_at_node(ErrorCode code, const std::string& words) const;

  std::shared_ptr<const File> file_;
  const Json* value_;
  std::string path_;
};

}  // namespace attend
