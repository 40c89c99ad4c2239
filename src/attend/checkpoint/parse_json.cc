#include "attend/checkpoint/parse_json.h"

#include <algorithm>
#include <type_traits>
#include <unordered_map>
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

// Places of the members of the open objects by their keys, for objects with linear lookup.
class OpenKeys {
 public:
  void open() { places_.emplace_back(); }
  void close() { places_.pop_back(); }
  // Returns the member's place, and true if it is a new one.
  std::pair<size_t, bool> add(const std::string& key) {
    const auto [member, is_new] = places_.back().try_emplace(key, places_.back().size());
    return {member->second, is_new};
  }

 private:
  std::vector<std::unordered_map<std::string, size_t>> places_;
};

// Builds values from parser events. The library's own builders keep the last of two equal keys, or search a
// whole object for each member.
template <class Json>
class TreeBuilder {
 public:
  TreeBuilder(std::string_view text, const std::string& file, const JsonRules& rules)
      : text_(text), file_(file), rules_(rules) {}
  Json take() { return std::move(root_); }

  // Events of nlohmann's parser, see nlohmann::json_sax. Returning true continues.
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string& token) {
    if (!rules_.exact_integers || token.find_first_of(".eE") != token.npos) return add(value);
    return add(Json::binary({token.begin(), token.end()}));
  }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(typename Json::binary_t&) { return false; }  // JSON has none
  bool start_object(size_t) { return open(Json::value_t::object); }
  bool start_array(size_t) { return open(Json::value_t::array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    const auto is_one_of = [&](std::span<const std::string_view> names) {
      return std::ranges::find(names, name) != names.end();
    };
    if (arguments_level_ == open_.size()) arguments_level_ = 0;  // their value has ended
    if (open_.size() == 1)
      in_conversation_ = is_one_of(rules_.conversation);
    else if (in_conversation_ && arguments_level_ == 0 && is_one_of(rules_.arguments))
      arguments_level_ = open_.size();
    const bool is_new = add_member(open_.back()->template get_ref<typename Json::object_t&>(), name);
    if (!is_new && !in_arguments())
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

  bool in_arguments() const { return arguments_level_ > 0 && open_.size() > arguments_level_; }

  // Sets `member_` to the member of the innermost object. Returns false if it existed.
  bool add_member(nlohmann::json::object_t& object, std::string& name) {
    const auto [member, is_new] = object.try_emplace(std::move(name));
    member_ = &member->second;
    return is_new;
  }
  // An ordered object is a vector of its members.
  bool add_member(OrderedJson::object_t& object, std::string& name) {
    const auto [place, is_new] = keys_.add(name);
    if (is_new) object.Container::emplace_back(std::move(name), nullptr);
    member_ = &object.Container::operator[](place).second;
    return is_new;
  }

  bool open(typename Json::value_t type) {
    if (arguments_level_ > 0 && open_.size() == arguments_level_ + kMaxArgumentDepth)
      fail(ErrorCode::kCorruptFile, file_, ": expected arguments of a call nested at most ",
           kMaxArgumentDepth, " levels deep");
    if (arguments_level_ == 0 && open_.size() == kMaxJsonDepth)
      fail(ErrorCode::kCorruptFile, file_, ": expected JSON nested at most ", kMaxJsonDepth, " levels deep");
    Json& value = place();
    value = Json(type);
    open_.push_back(&value);
    if constexpr (kOrdered) keys_.open();
    return true;
  }

  bool close() {
    open_.pop_back();
    if (open_.size() < arguments_level_) arguments_level_ = 0;
    if constexpr (kOrdered) keys_.close();
    return true;
  }

  std::string_view text_;
  const std::string& file_;
  const JsonRules& rules_;
  Json root_;
  std::vector<Json*> open_;  // from the outside in
  OpenKeys keys_;            // of ordered objects
  Json* member_ = nullptr;   // member of the innermost object with the last key read
  bool in_conversation_ = false;
  // Number of open values around a member with arguments, whose value is being read; 0: none.
  size_t arguments_level_ = 0;
};

// Returns whether a UTF-8 character begins with this byte.
bool begins_character(char byte) { return (byte & 0xC0) != 0x80; }

}  // namespace

namespace {

template <class Json>
Json parse(std::string_view text, const std::string& file, const JsonRules& rules) {
  // The parser treats a NUL as the end of the text and ignores the rest.
  if (const size_t nul = text.find('\0'); nul != text.npos)
    fail(ErrorCode::kCorruptFile, file, ": expected JSON, ", line_and_column(text, nul), ": a NUL byte");
  // The library's message differs between versions.
  if (text.empty())
    fail(ErrorCode::kCorruptFile, file, ": expected JSON, ", line_and_column(text, 0),
         ": unexpected end of input");
  TreeBuilder<Json> builder(text, file, rules);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

// The library has no values with the digits of an integer. `scalar` prints other values than containers.
template <class Scalar>
void append_json(const OrderedJson& value, const Scalar& scalar, std::string& text) {
  if (value.is_binary()) {
    text.append(value.get_binary().begin(), value.get_binary().end());
  } else if (value.is_array()) {
    text += '[';
    for (bool is_first = true; const OrderedJson& item : value) {
      if (!std::exchange(is_first, false)) text += ',';
      append_json(item, scalar, text);
    }
    text += ']';
  } else if (value.is_object()) {
    text += '{';
    for (bool is_first = true; const auto& [key, member] : value.get_ref<const OrderedJson::object_t&>()) {
      if (!std::exchange(is_first, false)) text += ',';
      text += scalar(OrderedJson(key)) + ':';
      append_json(member, scalar, text);
    }
    text += '}';
  } else {
    text += scalar(value);
  }
}

std::string shorten_excerpt(std::string text) {
  return text.size() > kExcerptChars ? text.substr(0, kExcerptChars) + "..." : text;
}

}  // namespace

Json parse_json(std::string_view text, const std::string& file) { return parse<Json>(text, file, {}); }
OrderedJson parse_ordered_json(std::string_view text, const std::string& file, const JsonRules& rules) {
  return parse<OrderedJson>(text, file, rules);
}

std::string json_text(const OrderedJson& value) {
  std::string text;
  append_json(
      value,
      [](const OrderedJson& scalar) {
        return scalar.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
      },
      text);
  return text;
}

bool is_string(const Json& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

std::string excerpt(const Json& value) {
  return shorten_excerpt(value.dump(-1, ' ', true, Json::error_handler_t::replace));
}
std::string excerpt(const OrderedJson& value) {
  std::string text;
  append_json(
      value,
      [](const OrderedJson& scalar) {
        return scalar.dump(-1, ' ', true, OrderedJson::error_handler_t::replace);
      },
      text);
  return shorten_excerpt(std::move(text));
}

std::string shorten(const std::string& text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t head = max_bytes / 2, tail = text.size() - max_bytes / 2;
  while (head > 0 && !begins_character(text[head])) --head;
  while (tail < text.size() && !begins_character(text[tail])) ++tail;
  return text.substr(0, head) + "..." + text.substr(tail);
}

}  // namespace attend
