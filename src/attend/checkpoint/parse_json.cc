#include "attend/checkpoint/parse_json.h"

#include <algorithm>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "attend/base/error.h"

namespace attend {
namespace {

constexpr size_t kExcerptChars = 60;
constexpr size_t kReasonChars = 100;
constexpr size_t kKeyChars = 80;

// Line and column of a byte, both from 1.
std::string line_and_column(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t column = before.size() - (before.rfind('\n') + 1) + 1;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

// Extracts the cause from the parser's message: "[json.exception.parse_error.101] parse error at line 1,
// column 2: syntax error while parsing value - invalid literal; last read: '{a'".
std::string parser_message(const Json::exception& error) {
  std::string_view reason = error.what();
  reason.remove_prefix(std::min(reason.size(), reason.find("] ") + 2));
  if (const size_t dash = reason.find(" - "); dash != reason.npos) reason.remove_prefix(dash + 3);
  return shorten(std::string(reason.substr(0, reason.find("; last read"))), kReasonChars);
}

// Keys of the open objects, for objects with linear lookup.
class OpenKeys {
 public:
  void open() { keys_.emplace_back(); }
  void close() { keys_.pop_back(); }
  bool add(const std::string& key) { return keys_.back().insert(key).second; }

 private:
  std::vector<std::unordered_set<std::string>> keys_;
};

// Builds values from parser events. The library's own builders keep the last of two equal keys, or search a
// whole object for each member.
template <class Json>
class TreeBuilder {
 public:
  TreeBuilder(std::string_view text, const std::string& file, BigIntegers big_integers)
      : text_(text), file_(file), big_integers_(big_integers) {}
  Json take() { return std::move(root_); }

  // Events of nlohmann's parser, see nlohmann::json_sax. Returning true continues.
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string& token) {
    if (big_integers_ == BigIntegers::kAsFloat || token.find_first_of(".eE") != token.npos) return add(value);
    return add(Json::binary({token.begin(), token.end()}));
  }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(typename Json::binary_t&) { return false; }  // JSON has none
  bool start_object(size_t) { return open(Json::value_t::object); }
  bool start_array(size_t) { return open(Json::value_t::array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    member_ = add_member(open_.back()->template get_ref<typename Json::object_t&>(), name);
    if (member_ == nullptr)
      fail(ErrorCode::kCorruptFile, file_, ": \"", shorten(name, kKeyChars), "\" occurs twice in one object");
    return true;
  }

  bool parse_error(size_t position, const std::string&, const typename Json::exception& error) {
    fail(ErrorCode::kCorruptFile, file_, ": expected JSON, ",
         line_and_column(text_, position - (position > 0)), ": ", parser_message(error));
  }

 private:
  static constexpr bool kOrdered = std::is_same_v<Json, OrderedJson>;

  // Location of the next value. Open values do not move, since their parents grow only after they are closed.
  Json& place() {
    if (open_.empty()) return root_;
    return open_.back()->is_array() ? open_.back()->template get_ref<typename Json::array_t&>().emplace_back()
                                    : *member_;
  }

  template <class Value>
  bool add(Value&& value) {
    place() = std::forward<Value>(value);
    return true;
  }

  // Adds a member to the innermost object; returns null if the name exists.
  Json* add_member(nlohmann::json::object_t& object, std::string& name) {
    const auto [member, is_new] = object.try_emplace(std::move(name));
    return is_new ? &member->second : nullptr;
  }
  // An ordered object is a vector of its members.
  Json* add_member(OrderedJson::object_t& object, std::string& name) {
    if (!keys_.add(name)) return nullptr;
    return &object.Container::emplace_back(std::move(name), nullptr).second;
  }

  bool open(typename Json::value_t type) {
    if (open_.size() == kMaxJsonDepth)
      fail(ErrorCode::kCorruptFile, file_, ": expected JSON nested at most ", kMaxJsonDepth, " levels deep");
    Json& value = place();
    value = Json(type);
    open_.push_back(&value);
    if constexpr (kOrdered) keys_.open();
    return true;
  }

  bool close() {
    open_.pop_back();
    if constexpr (kOrdered) keys_.close();
    return true;
  }

  std::string_view text_;
  const std::string& file_;
  BigIntegers big_integers_;
  Json root_;
  std::vector<Json*> open_;  // from the outside in
  OpenKeys keys_;            // of ordered objects
  Json* member_ = nullptr;   // member of the innermost object with the last key read
};

// Returns whether a UTF-8 character begins with this byte.
bool begins_character(char byte) { return (byte & 0xC0) != 0x80; }

}  // namespace

namespace {

template <class Json>
Json parse(std::string_view text, const std::string& file, BigIntegers big_integers) {
  // The parser treats a NUL as the end of the text and ignores the rest.
  if (const size_t nul = text.find('\0'); nul != text.npos)
    fail(ErrorCode::kCorruptFile, file, ": expected JSON, ", line_and_column(text, nul), ": a NUL byte");
  // The library's message differs between versions.
  if (text.empty())
    fail(ErrorCode::kCorruptFile, file, ": expected JSON, ", line_and_column(text, 0),
         ": unexpected end of input");
  TreeBuilder<Json> builder(text, file, big_integers);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

template <class Json>
std::string make_excerpt(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kExcerptChars) text = text.substr(0, kExcerptChars) + "...";
  return text;
}

}  // namespace

Json parse_json(std::string_view text, const std::string& file) {
  return parse<Json>(text, file, BigIntegers::kAsFloat);
}
OrderedJson parse_ordered_json(std::string_view text, const std::string& file, BigIntegers big_integers) {
  return parse<OrderedJson>(text, file, big_integers);
}

bool is_string(const Json& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

std::string excerpt(const Json& value) { return make_excerpt(value); }
std::string excerpt(const OrderedJson& value) { return make_excerpt(value); }

std::string shorten(const std::string& text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t head = max_bytes / 2, tail = text.size() - max_bytes / 2;
  while (head > 0 && !begins_character(text[head])) --head;
  while (tail < text.size() && !begins_character(text[tail])) ++tail;
  return text.substr(0, head) + "..." + text.substr(tail);
}

}  // namespace attend
