#include "attend/checkpoint/json.h"

#include <algorithm>
#include <limits>

#include "attend/checkpoint/input_file.h"

namespace attend {
namespace {

constexpr size_t kPathChars = 80;
constexpr size_t kWordsChars = 300;

std::string integer_range(int lowest, int highest) {
  return "an integer from " + std::to_string(lowest) + " to " + std::to_string(highest);
}

}  // namespace

JsonNode::JsonNode(Json value, std::string file)
    : file_(std::make_shared<const File>(File{std::move(value), std::move(file)})), value_(&file_->value) {}

JsonNode JsonNode::read(const std::filesystem::path& path, size_t max_bytes) {
  return JsonNode(parse_json(read_file(path, max_bytes), path.string()), path.string());
}

std::string JsonNode::where() const {
  return path_.empty() ? file_->name : file_->name + ": " + shorten(path_, kPathChars);
}

std::string JsonNode::where(std::string_view key) const {
  return file_->name + ": " + shorten((path_.empty() ? "" : path_ + ".") + std::string(key), kPathChars);
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  if (!value_->is_object()) reject("a JSON object");
  const auto field = value_->find(key);
  if (field == value_->end() || field->is_null()) return std::nullopt;
  return JsonNode(file_, *field, (path_.empty() ? "" : path_ + ".") + std::string(key));
}

bool JsonNode::mentions(std::string_view key) const { return value_->is_object() && value_->contains(key); }

JsonNode JsonNode::at(std::string_view key) const {
  std::optional<JsonNode> field = find(key);
  if (!field) corrupt("field \"", key, "\" is missing");
  return *std::move(field);
}

JsonNode JsonNode::at(size_t index) const {
  return JsonNode(file_, value_->at(index), path_ + "[" + std::to_string(index) + "]");
}

size_t JsonNode::array_size() const {
  if (!value_->is_array()) reject("a JSON array");
  return value_->size();
}

size_t JsonNode::object_size() const {
  if (!value_->is_object()) reject("a JSON object");
  return value_->size();
}

const std::string& JsonNode::string() const {
  if (!value_->is_string()) reject("a string");
  return value_->get_ref<const std::string&>();
}

const std::string& JsonNode::character() const {
  const std::string& text = string();
  if (std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; }) != 1)
    reject("one character");
  return text;
}

bool JsonNode::boolean() const {
  if (!value_->is_boolean()) reject("true or false");
  return value_->get<bool>();
}

int JsonNode::integer(int lowest, int highest) const {
  // A number above the range of int64 is unsigned, and get<int64_t> would wrap.
  const bool fits = value_->is_number_integer() &&
                    !(value_->is_number_unsigned() && value_->get<uint64_t>() > uint64_t{INT64_MAX});
  if (!fits || value_->get<int64_t>() < lowest || value_->get<int64_t>() > highest)
    reject(integer_range(lowest, highest));
  return static_cast<int>(value_->get<int64_t>());
}

double JsonNode::positive() const {
  using Limits = std::numeric_limits<float>;
  const double number = value_->is_number() ? value_->get<double>() : 0.0;
  if (!(number >= Limits::denorm_min() && number <= Limits::max()))
    reject("a number above 0 that a float32 holds");
  return number;
}

int32_t JsonNode::token_id() const {
  constexpr uint64_t kEnd = std::numeric_limits<int32_t>::max();
  // nlohmann-json stores nonnegative integers as unsigned.
  if (!value_->is_number_unsigned() || value_->get<uint64_t>() >= kEnd)
    reject("a token id, 0 to " + std::to_string(kEnd - 1));
  return static_cast<int32_t>(value_->get<uint64_t>());
}

int JsonNode::integer(std::string_view key, int lowest, int highest) const {
  const std::optional<int> found = find_integer(key, lowest, highest);
  if (!found) reject(key, integer_range(lowest, highest));
  return *found;
}

double JsonNode::positive(std::string_view key) const {
  const std::optional<double> found = find_positive(key);
  if (!found) reject(key, "a number above 0 that a float32 holds");
  return *found;
}

std::optional<int> JsonNode::find_integer(std::string_view key, int lowest, int highest) const {
  const auto field = find(key);
  return field ? std::optional(field->integer(lowest, highest)) : std::nullopt;
}

std::optional<double> JsonNode::find_positive(std::string_view key) const {
  const auto field = find(key);
  return field ? std::optional(field->positive()) : std::nullopt;
}

std::optional<bool> JsonNode::find_boolean(std::string_view key) const {
  const auto field = find(key);
  return field ? std::optional(field->boolean()) : std::nullopt;
}

std::optional<std::string> JsonNode::find_string(std::string_view key) const {
  const auto field = find(key);
  return field ? std::optional(field->string()) : std::nullopt;
}

void JsonNode::fail_at_node(ErrorCode code, const std::string& words) const {
  fail(code, where(), ": ", shorten(words, kWordsChars));
}

void JsonNode::reject(std::string_view expected) const {
  fail(ErrorCode::kCorruptFile, where(), " ", excerpt(*value_), ": expected ", expected);
}

void JsonNode::reject(std::string_view key, std::string_view expected) const {
  if (const auto field = find(key)) field->reject(expected);
  fail(ErrorCode::kCorruptFile, where(key), " is missing: expected ", expected);
}

}  // namespace attend
