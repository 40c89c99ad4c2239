#include "attend/text/chat_template/values/print.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <unordered_map>

#include "attend/base/error.h"
#include "attend/checkpoint/parse_json.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::chat_template {
namespace {

// Returns the shortest digits that parse to the same value, like Python's repr of a float.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const double size = std::fabs(value);
  const bool scientific = size != 0.0 && (size < 1e-4 || size >= 1e16);
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof(buffer), value,
                    scientific ? std::chars_format::scientific : std::chars_format::fixed);
  std::string text(buffer, end);
  if (!scientific && text.find('.') == text.npos) text += ".0";
  return text;
}

bool is_printable(char32_t code) {
  if (code < 0x80) return code >= 0x20 && code != 0x7f;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

// Appends characters one by one, replaced by escape(c). An empty result keeps the character.
template <class Escape>
void append_escaped(const Text& text, Text& out, Escape&& escape) {
  ReadBudget::charge(text.size() * kBytesPerConvertedChar);
  for (size_t at = 0; at < text.size();) {
    const tokenizer::Char c = tokenizer::read_char(text.bytes(), at);
    const std::string escaped = escape(c.code);
    out.append(escaped.empty() ? std::string_view(text.bytes()).substr(at, c.bytes) : escaped, text.from(at));
    at += c.bytes;
  }
}

void append_repr(const Text& text, Text& out) {
  const bool double_quotes =
      text.bytes().find('\'') != std::string::npos && text.bytes().find('"') == std::string::npos;
  const char quote = double_quotes ? '"' : '\'';
  out.append(std::string_view(&quote, 1));
  append_escaped(text, out, [&](char32_t code) -> std::string {
    if (code == static_cast<char32_t>(quote) || code == '\\') return {'\\', static_cast<char>(code)};
    if (code == '\n') return "\\n";
    if (code == '\r') return "\\r";
    if (code == '\t') return "\\t";
    if (is_printable(code)) return {};
    return code < 0x100     ? fmt::format("\\x{:02x}", static_cast<uint32_t>(code))
           : code < 0x10000 ? fmt::format("\\u{:04x}", static_cast<uint32_t>(code))
                            : fmt::format("\\U{:08x}", static_cast<uint32_t>(code));
  });
  out.append(std::string_view(&quote, 1));
}

void append_repr(const Value& value, Text& out);

void append_items(const List& list, Text& out) {
  out.append(list.is_tuple ? "(" : "[");
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.append(", ");
    append_repr(list.items[i], out);
  }
  if (list.is_tuple && list.items.size() == 1) out.append(",");
  out.append(list.is_tuple ? ")" : "]");
}

void append_repr(const Value& value, Text& out) {
  ReadBudget::charge(kBytesPerVisit);
  if (value.is_undefined()) return out.append("Undefined");
  if (value.is_none()) return out.append("None");
  if (const bool* flag = value.get<bool>()) return out.append(*flag ? "True" : "False");
  if (const int64_t* number = value.get<int64_t>()) return out.append(std::to_string(*number));
  if (const double* number = value.get<double>()) return out.append(float_text(*number));
  if (const BigInteger* number = value.big_integer()) return out.append(number->digits);
  if (const Text* text = value.text()) return append_repr(*text, out);
  if (const List* list = value.list()) return append_items(*list, out);
  const Dict* dict = value.dict();
  if (!dict) fail_template("a ", value.type_name(), " cannot be printed");
  out.append("{");
  for (size_t i = 0; i < dict->items.size(); ++i) {
    if (i > 0) out.append(", ");
    append_repr(dict->items[i].first, out);
    out.append(": ");
    append_repr(dict->items[i].second, out);
  }
  out.append("}");
}

class JsonPrinter {
 public:
  explicit JsonPrinter(JsonStyle style) : style_(std::move(style)) {}

  void print(const Value& value, int depth) {
    ReadBudget::charge(kBytesPerVisit);
    if (value.is_none()) return out_.append("null");
    if (const bool* flag = value.get<bool>()) return out_.append(*flag ? "true" : "false");
    if (const int64_t* number = value.get<int64_t>()) return out_.append(std::to_string(*number));
    if (const double* number = value.get<double>()) return out_.append(number_text(*number));
    if (const BigInteger* number = value.big_integer()) return out_.append(number->digits);
    if (const Text* text = value.text()) return print(*text);
    if (const List* list = value.list()) return print(*list, depth);
    if (const Dict* dict = value.dict()) return print(*dict, depth);
    fail_template("tojson: a ", value.type_name(), " has no JSON");
  }

  Text take() { return std::move(out_); }

 private:
  static std::string number_text(double number) {
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return float_text(number);
  }

  void print(const Text& text) {
    out_.append("\"");
    append_escaped(text, out_, [&](char32_t code) -> std::string {
      switch (code) {
        case '"':
          return "\\\"";
        case '\\':
          return "\\\\";
        case '\n':
          return "\\n";
        case '\r':
          return "\\r";
        case '\t':
          return "\\t";
        case '\b':
          return "\\b";
        case '\f':
          return "\\f";
      }
      const auto unit = static_cast<uint32_t>(code);
      if (code >= 0x20 && (code <= '~' || !style_.ascii)) return {};
      if (code < 0x10000) return fmt::format("\\u{:04x}", unit);
      return fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((unit - 0x10000) >> 10),
                         0xdc00 + ((unit - 0x10000) & 0x3ff));
    });
    out_.append("\"");
  }

  void print(const List& list, int depth) {
    out_.append("[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      begin_item(i, depth);
      print(list.items[i], depth + 1);
    }
    end(list.items.empty(), depth);
    out_.append("]");
  }

  void print(const Dict& dict, int depth) {
    auto items = dict.items;
    if (style_.sort_keys)
      std::stable_sort(items.begin(), items.end(),
                       [](const auto& a, const auto& b) { return compare(a.first, b.first) < 0; });
    out_.append("{");
    for (size_t i = 0; i < items.size(); ++i) {
      begin_item(i, depth);
      print(key_text(items[i].first));
      out_.append(style_.key_separator);
      print(items[i].second, depth + 1);
    }
    end(items.empty(), depth);
    out_.append("}");
  }

  static Text key_text(const Value& key) {
    if (const Text* text = key.text()) return *text;
    JsonPrinter printer({});
    if (key.list() || key.dict()) fail_template("tojson: a ", key.type_name(), " cannot be a key");
    printer.print(key, 0);
    return printer.take();
  }

  void begin_item(size_t i, int depth) {
    if (i > 0) out_.append(style_.item_separator);
    new_line(depth + 1);
  }
  void end(bool empty, int depth) {
    if (!empty) new_line(depth);
  }
  void new_line(int depth) {
    if (!style_.indent) return;
    out_.append("\n" + std::string(static_cast<size_t>(*style_.indent * depth), ' '));
  }

  JsonStyle style_;
  Text out_;
};

}  // namespace

Text to_text(const Value& value) {
  if (const Text* text = value.text()) return *text;
  Text out;
  if (!value.is_undefined()) append_repr(value, out);
  return out;
}

Text to_json(const Value& value, const JsonStyle& style) {
  JsonPrinter printer(style);
  printer.print(value, 0);
  return printer.take();
}

namespace {

Value to_value(const OrderedJson& json, Text::From from) {
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case OrderedJson::value_t::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX) return Value::big_integer(std::to_string(json.get<uint64_t>()));
      [[fallthrough]];
    case OrderedJson::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case OrderedJson::value_t::number_float:
      return Value::real(json.get<double>());
    case OrderedJson::value_t::binary:
      return Value::big_integer({json.get_binary().begin(), json.get_binary().end()});
    case OrderedJson::value_t::string:
      return Text(json.get_ref<const std::string&>(), from);
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      for (const OrderedJson& item : json) items.push_back(to_value(item, from));
      return Value::list(std::move(items));
    }
    case OrderedJson::value_t::object: {
      std::vector<std::pair<Value, Value>> items;
      for (const auto& item : json.items())
        items.emplace_back(Text(item.key(), from), to_value(item.value(), from));
      return Value::dict(std::move(items));
    }
    default:
      return Value::none();
  }
}

}  // namespace

namespace {

// Builds values from events of nlohmann's parser. Returning true continues.
class ValueBuilder final : public nlohmann::json_sax<OrderedJson> {
 public:
  Value take() { return std::move(root_); }

  bool null() override { return add(Value::none()); }
  bool boolean(bool value) override { return add(Value::boolean(value)); }
  bool number_integer(int64_t value) override { return add(Value::integer(value)); }
  bool number_unsigned(uint64_t value) override {
    return add(value > INT64_MAX ? Value::big_integer(std::to_string(value))
                                 : Value::integer(static_cast<int64_t>(value)));
  }
  bool number_float(double value, const std::string& token) override {
    return add(token.find_first_of(".eE") == token.npos ? Value::big_integer(token) : Value::real(value));
  }
  bool string(std::string& value) override { return add(Text(value, Text::From::kUser)); }
  bool binary(OrderedJson::binary_t&) override { return false; }  // JSON has none
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool key(std::string& name) override {
    Open& object = open_.back();
    const auto [place, is_new] = object.places.try_emplace(name, object.members.size());
    object.place = place->second;
    if (is_new) object.members.emplace_back(Text(name, Text::From::kUser), Value::none());
    return true;
  }
  bool end_object() override { return close(Value::dict(std::move(open_.back().members))); }
  bool end_array() override { return close(Value::list(std::move(open_.back().items))); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    fail_template(std::string(error.what()));
  }

 private:
  struct Open {
    std::vector<Value> items;
    std::vector<std::pair<Value, Value>> members;
    std::unordered_map<std::string, size_t> places;  // of the members
    std::optional<size_t> place;                     // of the next value; none: in a list
  };

  bool open() {
    if (open_.size() == kMaxArgumentDepth) fail_template("JSON text: nested too deep");
    open_.emplace_back();
    return true;
  }
  bool close(Value value) {
    open_.pop_back();
    return add(std::move(value));
  }
  bool add(Value value) {
    if (open_.empty())
      root_ = std::move(value);
    else if (Open& last = open_.back(); last.place)
      last.members[*last.place].second = std::move(value);
    else
      last.items.push_back(std::move(value));
    return true;
  }

  std::vector<Open> open_;
  Value root_;
};

}  // namespace

Value from_model_json(std::string_view json) {
  ValueBuilder builder;
  OrderedJson::sax_parse(json, &builder);
  return builder.take();
}

Value from_json(std::string_view json, Text::From from) {
  try {
    return to_value(parse_ordered_json(json, "JSON text", kConversationJson), from);
  } catch (const Error& error) {
    fail_template(std::string(error.what()));
  }
}

}  // namespace attend::chat_template
