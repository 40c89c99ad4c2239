#include "attend/model/json.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <unordered_set>
#include <vector>

namespace attend {
namespace {

constexpr size_t kExcerptChars = 60;
constexpr size_t kReasonChars = 100;
constexpr size_t kPathChars = 80;
constexpr size_t kWordsChars = 300;
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
  std::vector<std::unordered_set<std::string>> open_;
  std::optional<std::string> found_;
};

// Whether a UTF-8 character begins with this byte.
bool begins_character(char byte) { return (byte & 0xC0) != 0x80; }

// The middle of a long text left out, between characters.
std::string shorten(const std::string& text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t head = max_bytes / 2, tail = text.size() - max_bytes / 2;
  while (head > 0 && !begins_character(text[head])) --head;
  while (tail < text.size() && !begins_character(text[tail])) ++tail;
  return text.substr(0, head) + "..." + text.substr(tail);
}

// Line and column of a byte, both from 1.
std::string place_of(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t column = before.size() - (before.rfind('\n') + 1) + 1;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

// The part of the parser's message that says what is wrong: "[json.exception.parse_error.101] parse error at
// line 1, column 2: syntax error while parsing value - invalid literal; last read: '{a'".
std::string reason_of(const Json::exception& error) {
  std::string_view reason = error.what();
  reason.remove_prefix(std::min(reason.size(), reason.find("] ") + 2));
  if (const size_t dash = reason.find(" - "); dash != reason.npos) reason.remove_prefix(dash + 3);
  return shorten(std::string(reason.substr(0, reason.find("; last read"))), kReasonChars);
}

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
  } catch (const Json::parse_error& error) {
    fail(ErrorCode::kCorruptFile, file, ": expected JSON, ",
         place_of(text, error.byte == 0 ? 0 : error.byte - 1), ": ", reason_of(error));
  } catch (const Json::exception& error) {
    fail(ErrorCode::kCorruptFile, file, ": expected JSON: ", reason_of(error));
  }
  if (duplicates.found())
    fail(ErrorCode::kCorruptFile, file, ": \"", shorten(*duplicates.found(), kPathChars),
         "\" stands twice in one object");
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

JsonNode::JsonNode(Json value, std::string file)
    : file_(std::make_shared<const File>(File{std::move(value), std::move(file)})), value_(&file_->value) {}

JsonNode JsonNode::read(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    fail(ErrorCode::kNotFound, path.string(), ": is a directory: expected a file");
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(ErrorCode::kNotFound, path.string(), ": no such file, or it can not be read");
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) fail(ErrorCode::kNotFound, path.string(), ": can not be read");
  return JsonNode(parse_json(text, path.string()), path.string());
}

std::string JsonNode::where() const {
  return path_.empty() ? file_->name : file_->name + ": " + shorten(path_, kPathChars);
}

std::string JsonNode::where(std::string_view key) const {
  return file_->name + ": " + shorten((path_.empty() ? "" : path_ + ".") + std::string(key), kPathChars);
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  if (!value_->is_object()) refuse("a JSON object");
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
  if (!value_->is_array()) refuse("a JSON array");
  return value_->size();
}

size_t JsonNode::object_size() const {
  if (!value_->is_object()) refuse("a JSON object");
  return value_->size();
}

const std::string& JsonNode::string() const {
  if (!value_->is_string()) refuse("a string");
  return value_->get_ref<const std::string&>();
}

const std::string& JsonNode::character() const {
  const std::string& text = string();
  if (std::count_if(text.begin(), text.end(), begins_character) != 1) refuse("one character");
  return text;
}

bool JsonNode::boolean() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

int JsonNode::integer(int lowest, int highest) const {
  // A number above the range of int64 is unsigned, and get<int64_t> would wrap.
  const bool fits = value_->is_number_integer() &&
                    !(value_->is_number_unsigned() && value_->get<uint64_t>() > uint64_t{INT64_MAX});
  if (!fits || value_->get<int64_t>() < lowest || value_->get<int64_t>() > highest)
    refuse(integer_range(lowest, highest));
  return static_cast<int>(value_->get<int64_t>());
}

double JsonNode::positive() const {
  using Limits = std::numeric_limits<float>;
  const double number = value_->is_number() ? value_->get<double>() : 0.0;
  if (!(number >= Limits::denorm_min() && number <= Limits::max()))
    refuse("a number above 0 that a float32 holds");
  return number;
}

int32_t JsonNode::token_id() const {
  constexpr uint64_t kEnd = std::numeric_limits<int32_t>::max();
  // nlohmann-json keeps every integer that is not negative as unsigned.
  if (!value_->is_number_unsigned() || value_->get<uint64_t>() >= kEnd)
    refuse("a token id, 0 to " + std::to_string(kEnd - 1));
  return static_cast<int32_t>(value_->get<uint64_t>());
}

int JsonNode::integer(std::string_view key, int lowest, int highest) const {
  const std::optional<int> found = find_integer(key, lowest, highest);
  if (!found) refuse(key, integer_range(lowest, highest));
  return *found;
}

double JsonNode::positive(std::string_view key) const {
  const std::optional<double> found = find_positive(key);
  if (!found) refuse(key, "a number above 0 that a float32 holds");
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

void JsonNode::fail_here(ErrorCode code, const std::string& words) const {
  fail(code, where(), ": ", shorten(words, kWordsChars));
}

void JsonNode::refuse(std::string_view expected) const {
  fail(ErrorCode::kCorruptFile, where(), " ", excerpt(*value_), ": expected ", expected);
}

void JsonNode::refuse(std::string_view key, std::string_view expected) const {
  if (const auto field = find(key)) field->refuse(expected);
  fail(ErrorCode::kCorruptFile, where(key), " is missing: expected ", expected);
}

}  // namespace attend
