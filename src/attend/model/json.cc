#include "attend/model/json.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "attend/base/error.h"

namespace attend {
namespace {

constexpr size_t kExcerptChars = 60;
// Deeper than any file that attend reads; the library prints and compares values by recursion.
constexpr int kMaxNesting = 64;

// Follows a parse and remembers the keys of the objects that are open.
class DuplicateKeys {
 public:
  // The first key that stood twice, or nothing.
  const std::optional<std::string>& found() const { return found_; }

  void see(Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start) open_.emplace_back();
    if (event == Json::parse_event_t::object_end) open_.pop_back();
    if (event == Json::parse_event_t::key && !open_.back().insert(parsed.get<std::string>()).second &&
        !found_)
      found_ = parsed.get<std::string>();
  }

 private:
  std::vector<std::set<std::string>> open_;
  std::optional<std::string> found_;
};

std::string integer_range(int lowest, int highest) {
  return "an integer from " + std::to_string(lowest) + " to " + std::to_string(highest);
}

}  // namespace

Json parse_json(std::string_view text, const std::string& file) {
  DuplicateKeys duplicates;
  Json parsed;
  try {
    parsed = Json::parse(text.begin(), text.end(), [&](int depth, Json::parse_event_t event, Json& value) {
      if (depth > kMaxNesting)
        fail(ErrorCode::kCorruptFile, file, ": expected JSON nested at most ", kMaxNesting, " levels deep");
      duplicates.see(event, value);
      return true;
    });
  } catch (const Json::exception& error) {
    fail(ErrorCode::kCorruptFile, file, ": expected JSON, ", error.what());
  }
  if (duplicates.found())
    fail(ErrorCode::kCorruptFile, file, ": \"", *duplicates.found(), "\" stands twice in one object");
  return parsed;
}

bool is_string(const Json& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

std::string excerpt(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kExcerptChars) text = text.substr(0, kExcerptChars) + "...";
  return text;
}

JsonObject::JsonObject(Json value, std::string file, std::string path)
    : value_(std::move(value)), file_(std::move(file)), path_(std::move(path)) {
  if (!value_.is_object())
    fail(ErrorCode::kCorruptFile, where(""), " ", excerpt(value_), ": expected a JSON object");
}

JsonObject JsonObject::read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path))
    fail(ErrorCode::kNotFound, path.string(), ": no such file, or it can not be read");
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  return JsonObject(parse_json(text, path.string()), path.string());
}

const Json* JsonObject::find(const char* key) const {
  const auto field = value_.find(key);
  return field == value_.end() || field->is_null() ? nullptr : &*field;
}

int JsonObject::integer(const char* key, int lowest, int highest) const {
  const std::optional<int> found = find_integer(key, lowest, highest);
  if (!found) refuse(key, integer_range(lowest, highest));
  return *found;
}

std::optional<int> JsonObject::find_integer(const char* key, int lowest, int highest) const {
  const Json* field = find(key);
  if (field == nullptr) return std::nullopt;
  // A number above the range of int64 is unsigned, and get<int64_t> would wrap.
  const bool fits = field->is_number_integer() &&
                    !(field->is_number_unsigned() && field->get<uint64_t>() > uint64_t{INT64_MAX});
  if (!fits || field->get<int64_t>() < lowest || field->get<int64_t>() > highest)
    refuse(key, integer_range(lowest, highest));
  return static_cast<int>(field->get<int64_t>());
}

double JsonObject::positive(const char* key) const {
  const std::optional<double> found = find_positive(key);
  if (!found) refuse(key, "a number above 0");
  return *found;
}

std::optional<double> JsonObject::find_positive(const char* key) const {
  const Json* field = find(key);
  if (field == nullptr) return std::nullopt;
  if (!field->is_number() || !std::isfinite(field->get<double>()) || field->get<double>() <= 0.0)
    refuse(key, "a number above 0");
  return field->get<double>();
}

std::optional<bool> JsonObject::find_flag(const char* key) const {
  const Json* field = find(key);
  if (field == nullptr) return std::nullopt;
  if (!field->is_boolean()) refuse(key, "true or false");
  return field->get<bool>();
}

std::optional<std::string> JsonObject::find_string(const char* key) const {
  const Json* field = find(key);
  if (field == nullptr) return std::nullopt;
  if (!field->is_string()) refuse(key, "a string");
  return field->get<std::string>();
}

std::optional<JsonObject> JsonObject::find_object(const char* key) const {
  const Json* field = find(key);
  if (field == nullptr) return std::nullopt;
  if (!field->is_object()) refuse(key, "a JSON object");
  return JsonObject(*field, file_, path_ + key + ".");
}

std::string JsonObject::where(std::string_view key) const {
  std::string place = file_ + ": " + path_ + std::string(key);
  if (key.empty()) place.resize(place.find_last_not_of(". :") + 1);
  return place;
}

void JsonObject::refuse(const char* key, std::string_view expected) const {
  const Json* field = find(key);
  if (field == nullptr) fail(ErrorCode::kCorruptFile, where(key), " is missing: expected ", expected);
  fail(ErrorCode::kCorruptFile, where(key), " ", excerpt(*field), ": expected ", expected);
}

}  // namespace attend
