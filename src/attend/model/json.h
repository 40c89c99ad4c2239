// JSON files of a model directory, read strictly: every error names the file, the field, its value and what
// was expected. Internal to the model floor.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace attend {

using Json = nlohmann::json;

// Parses `text`; `file` is how errors call it. Refuses a key that stands twice in one object, which JSON
// leaves open and readers resolve differently. Throws Error(kCorruptFile) with the byte where parsing ended.
Json parse_json(std::string_view text, const std::string& file);

// Whether `value` is this string.
bool is_string(const Json& value, std::string_view text);

// The start of a value as it stands in the file, for messages.
std::string excerpt(const Json& value);

// A JSON object that knows where it stands. A field that is null counts as absent.
class JsonObject {
 public:
  // `file` and `path` are how errors call the object: "config.json" and "rope_scaling.".
  JsonObject(Json value, std::string file, std::string path = "");
  // Reads a whole file. Throws Error(kNotFound) when it can not be read, Error(kCorruptFile) when it holds
  // something else than one object.
  static JsonObject read(const std::filesystem::path& path);

  bool has(const char* key) const { return find(key) != nullptr; }
  // Present, if only as null.
  bool mentions(const char* key) const { return value_.contains(key); }
  // The value, or null when it is absent.
  const Json* find(const char* key) const;
  const Json& value() const { return value_; }

  // Throw Error(kCorruptFile) for another type or a value out of range; those without `find` also for an
  // absent field.
  int integer(const char* key, int lowest, int highest) const;
  std::optional<int> find_integer(const char* key, int lowest, int highest) const;
  double positive(const char* key) const;  // finite, above 0
  std::optional<double> find_positive(const char* key) const;
  std::optional<bool> find_flag(const char* key) const;
  std::optional<std::string> find_string(const char* key) const;
  std::optional<JsonObject> find_object(const char* key) const;

  // "dir/config.json: rope_scaling.factor"
  std::string where(std::string_view key) const;
  // Throws Error(kCorruptFile): where, the value if there is one, and what was expected.
  [[noreturn]] void refuse(const char* key, std::string_view expected) const;

 private:
  Json value_;
  std::string file_, path_;
};

}  // namespace attend
