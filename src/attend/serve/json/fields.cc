#include "attend/serve/json/fields.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "attend/base/error.h"

namespace attend::serve {

namespace {

// Counts the list elements of each field of a body from the parser's events. Parsed values need many times
// the memory of their text, so that a body is checked before.
class ItemCounter final : public nlohmann::json_sax<Json> {
 public:
  const std::string& largest_field() const { return largest_field_; }
  size_t largest_count() const { return largest_count_; }

  bool null() override { return count(); }
  bool boolean(bool) override { return count(); }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool string(string_t&) override { return count(); }
  bool start_object(size_t) override { return open(/*is_list=*/false); }
  bool start_array(size_t) override { return open(/*is_list=*/true); }
  bool key(string_t& key) override {
    if (open_.size() != 1) return true;
    field_ = key;
    num_items_ = 0;
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  // The parser that builds the values reports the error.
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool count() {
    if (open_.empty() || !open_.back()) return true;
    if (++num_items_ > largest_count_) {
      largest_count_ = num_items_;
      if (largest_field_ != field_) largest_field_ = field_;
    }
    return true;
  }
  bool open(bool is_list) {
    count();
    if (open_.size() == kMaxJsonDepth + kMaxArgumentDepth) return false;
    open_.push_back(is_list);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::vector<bool> open_;  // open values, from the outside in: true for a list
  std::string field_, largest_field_;
  size_t num_items_ = 0, largest_count_ = 0;
};

void check_num_items(const std::string& body, size_t max_items) {
  // An element takes at least two bytes: "[{},{}]".
  if (body.size() / 2 <= max_items) return;
  ItemCounter counter;
  Json::sax_parse(body, &counter);
  if (counter.largest_count() > max_items)
    reject(counter.largest_field(), counter.largest_field(), " has ", counter.largest_count(),
           " list elements: expected at most ", max_items, " (--max-request-items)");
}

}  // namespace

std::optional<double> as_number(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_binary()) return std::nullopt;
  const std::string digits(value.get_binary().begin(), value.get_binary().end());
  return std::stod(digits);  // JSON with a number above the range of double is rejected
}

Json parse_body(const std::string& body, size_t max_items) {
  check_num_items(body, max_items);
  try {
    Json parsed = parse_ordered_json(body, "the body", kConversationJson);
    if (!parsed.is_object()) reject("", "the body is ", excerpt(parsed), ": expected a JSON object");
    return parsed;
  } catch (const Error& error) {
    reject("", error.what());
  }
}

Fields::Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  const std::string own_name = where_.substr(0, where_.empty() ? 0 : where_.size() - 1);
  if (!object.is_object()) reject(own_name, own_name, " ", excerpt(object), ": expected an object");
}

const Json* Fields::find(const std::string& key) const {
  read_fields_.push_back(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<double> Fields::number(const std::string& key) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  const std::optional<double> number = as_number(*value);
  if (!number || !std::isfinite(*number))
    reject(name(key), name(key), " ", excerpt(*value), ": expected a number");
  return number;
}

std::optional<int64_t> Fields::integer(const std::string& key, int64_t lowest, int64_t highest) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  // Accepts 5.0 as an integer, since some clients send it.
  const double number = as_number(*value).value_or(NAN);
  const bool whole = value->is_number_integer() || (std::trunc(number) == number && std::fabs(number) < 9e15);
  const bool too_large = value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX};
  if (!whole || too_large || number < static_cast<double>(lowest) || number > static_cast<double>(highest))
    reject(name(key), name(key), " ", excerpt(*value), ": expected an integer from ", lowest, " to ",
           highest);
  return value->is_number_integer() ? value->get<int64_t>() : static_cast<int64_t>(number);
}

std::optional<bool> Fields::boolean(const std::string& key) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) reject(name(key), name(key), " ", excerpt(*value), ": expected true or false");
  return value->get<bool>();
}

std::optional<std::string> Fields::string(const std::string& key) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_string()) reject(name(key), name(key), " ", excerpt(*value), ": expected a string");
  return value->get<std::string>();
}

std::vector<std::string> Fields::strings(const std::string& key) const {
  const Json* value = find(key);
  if (!value) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array())
    reject(name(key), name(key), " ", excerpt(*value), ": expected a string or a list of strings");
  std::vector<std::string> strings;
  for (const Json& item : *value) {
    if (!item.is_string()) reject(name(key), name(key), " holds ", excerpt(item), ": expected strings");
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

std::vector<int32_t> Fields::token_ids(const std::string& key) const {
  const Json* value = find(key);
  return value ? read_token_ids(*value, name(key)) : std::vector<int32_t>{};
}

std::optional<std::string> Fields::id(const std::string& key) const {
  std::optional<std::string> value = string(key);
  const auto can_be_seen = [](char c) { return c > ' ' && c <= '~'; };
  if (value &&
      (value->empty() || value->size() > 200 || !std::all_of(value->begin(), value->end(), can_be_seen)))
    reject(name(key), name(key), " ", excerpt(*find(key)),
           ": expected 1 to 200 characters of ASCII, without spaces");
  return value;
}

bool Fields::has_read(const std::string& key) const {
  return std::find(read_fields_.begin(), read_fields_.end(), key) != read_fields_.end();
}

std::vector<std::string> Fields::unknown() const {
  std::vector<std::string> keys;
  for (const auto& item : object_.items())
    if (!item.value().is_null() && !has_read(item.key())) keys.push_back(item.key());
  return keys;
}

bool has_type(const Json& value, std::string_view type) {
  if (!value.is_object()) return false;
  const auto found = value.find("type");
  return found != value.end() && found->is_string() && found->get_ref<const std::string&>() == type;
}

std::vector<int32_t> read_token_ids(const Json& list, const std::string& param) {
  if (!list.is_array()) reject(param, param, " ", excerpt(list), ": expected a list of token ids");
  std::vector<int32_t> ids;
  for (const Json& id : list) {
    const double number = as_number(id).value_or(-1.0);
    if (std::trunc(number) != number || number < 0.0 || number > INT32_MAX)
      reject(param, param, " holds ", excerpt(id), ": expected token ids, integers from 0");
    ids.push_back(static_cast<int32_t>(number));
  }
  return ids;
}

}  // namespace attend::serve
