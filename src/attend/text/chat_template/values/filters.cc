// Filters: {{ value | name(arguments) }}.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "attend/text/chat_template/values/builtins.h"
#include "attend/text/chat_template/values/print.h"

namespace attend::chat_template {
namespace {

bool flag(Arguments& arguments, std::string_view name, bool missing) {
  return is_true(arguments.take(name, Value::boolean(missing)));
}

// Key by which items are sorted and compared.
class Key {
 public:
  Key(const Value& attribute, bool case_sensitive) : attribute_(attribute), case_sensitive_(case_sensitive) {}
  Value of(const Value& item) const {
    Value key = attribute_.is_none() ? item : get_path(item, attribute_);
    return key.text() && !case_sensitive_ ? Value(to_case(*key.text(), Case::kLower)) : key;
  }

 private:
  Value attribute_;
  bool case_sensitive_;
};

void sort_by_key(std::vector<Value>& items, const Key& key, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items) keyed.emplace_back(key.of(item), item);
  // Checks all comparisons before sorting, since an exception within the sort would leave moved-from values.
  for (size_t i = 1; i < keyed.size(); ++i) compare(keyed[i - 1].first, keyed[i].first);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    const int order = compare(a.first, b.first);
    return reverse ? order > 0 : order < 0;
  });
  for (size_t i = 0; i < items.size(); ++i) items[i] = keyed[i].second;
}

Value sort_filter(const Value& input, Arguments& arguments, Render& render) {
  const bool reverse = flag(arguments, "reverse", false);
  const bool case_sensitive = flag(arguments, "case_sensitive", false);
  const Key key(arguments.take("attribute", Value::none()), case_sensitive);
  std::vector<Value> items = get_items(input);
  render.charge(items.size() * 64);
  sort_by_key(items, key, reverse);
  return Value::list(std::move(items));
}

Value dictsort(const Value& input, Arguments& arguments, Render&) {
  const bool case_sensitive = flag(arguments, "case_sensitive", false);
  const Value by = arguments.take("by", Text("key"));
  const bool reverse = flag(arguments, "reverse", false);
  const bool by_value = as_text(by, "dictsort").bytes() == "value";
  if (!by_value && by.text()->bytes() != "key") fail_template("dictsort: by needs \"key\" or \"value\"");
  if (!input.dict()) fail_template("dictsort: needs a mapping, not a ", input.type_name());
  std::vector<Value> items;
  for (const auto& [key, value] : input.dict()->items) items.push_back(Value::list({key, value}, true));
  sort_by_key(items, Key(Value::integer(by_value), case_sensitive), reverse);
  return Value::list(std::move(items));
}

template <int kSign>
Value extreme(const Value& input, Arguments& arguments, Render&) {
  const bool case_sensitive = flag(arguments, "case_sensitive", false);
  const Key key(arguments.take("attribute", Value::none()), case_sensitive);
  const std::vector<Value> items = get_items(input);
  if (items.empty()) return Value::undefined("the extreme of nothing");
  const Value* best = &items[0];
  for (const Value& item : items)
    if (compare(key.of(item), key.of(*best)) * kSign > 0) best = &item;
  return *best;
}

Value unique(const Value& input, Arguments& arguments, Render& render) {
  const bool case_sensitive = flag(arguments, "case_sensitive", false);
  const Key key(arguments.take("attribute", Value::none()), case_sensitive);
  std::vector<Value> kept, seen;
  for (const Value& item : get_items(input)) {
    const Value its_key = key.of(item);
    render.charge(seen.size());
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return is_equal(other, its_key); }))
      continue;
    seen.push_back(its_key);
    kept.push_back(item);
  }
  return Value::list(std::move(kept));
}

Value sum(const Value& input, Arguments& arguments, Render& render) {
  const Value attribute = arguments.take("attribute", Value::none());
  Value total = arguments.take("start", Value::integer(0));
  for (const Value& item : get_items(input))
    total = apply(Operator::kAdd, total, attribute.is_none() ? item : get_path(item, attribute), render);
  return total;
}

// Items for select and map: empty and None yield no items.
std::vector<Value> items_if_any(const Value& value) {
  return is_true(value) ? get_items(value) : std::vector<Value>{};
}

// select and reject test the item, selectattr and rejectattr an attribute. Without a test, truth is tested.
template <bool kByAttribute, bool kWanted>
Value select(const Value& input, Arguments& arguments, Render& render) {
  const Value attribute = kByAttribute ? arguments.take("attribute", Value()) : Value::none();
  const std::optional<Value> name = arguments.take("test");
  const Test test = name ? find_test(as_text(*name, "select").bytes()) : nullptr;
  if (name && !test) fail_template("no test ", name->text()->bytes());
  std::vector<Value> rest;
  while (auto argument = arguments.take("")) rest.push_back(std::move(*argument));
  std::vector<Value> kept;
  for (const Value& item : items_if_any(input)) {
    const Value tested = kByAttribute ? get_path(item, attribute) : item;
    Arguments test_arguments(rest);
    render.charge(sizeof(Value));
    if ((test ? test(tested, test_arguments) : is_true(tested)) == kWanted) kept.push_back(item);
  }
  return Value::list(std::move(kept));
}

Value map_filter(const Value& input, Arguments& arguments, Render& render) {
  std::vector<Value> mapped;
  if (arguments.positional.empty()) {
    const Value attribute = arguments.take("attribute", Value());
    const std::optional<Value> missing = arguments.take("default");
    for (const Value& item : items_if_any(input)) {
      Value value = get_path(item, attribute);
      mapped.push_back(value.is_undefined() && missing ? *missing : value);
    }
    render.charge(mapped.size() * sizeof(Value));
    return Value::list(std::move(mapped));
  }
  const Value name = arguments.take("name", Value());
  const Filter filter = find_filter(as_text(name, "map").bytes());
  if (!filter) fail_template("no filter ", name.text()->bytes());
  Arguments rest;
  while (auto argument = arguments.take("")) rest.positional.push_back(std::move(*argument));
  rest.named = std::exchange(arguments.named, {});
  for (const Value& item : items_if_any(input)) {
    Arguments filter_arguments = rest;
    mapped.push_back(filter(item, filter_arguments, render));
    filter_arguments.finish(name.text()->bytes());
    render.charge(sizeof(Value));
  }
  return Value::list(std::move(mapped));
}

Value join(const Value& input, Arguments& arguments, Render& render) {
  const Text separator = to_text(arguments.take("d", Text("")));
  const Value attribute = arguments.take("attribute", Value::none());
  Text joined;
  bool first = true;
  for (const Value& item : get_items(input)) {
    if (!first) joined.append(separator);
    first = false;
    const Text text = to_text(attribute.is_none() ? item : get_path(item, attribute));
    render.charge(separator.size() + text.size());
    joined.append(text);
  }
  return joined;
}

Value default_filter(const Value& input, Arguments& arguments, Render&) {
  Value missing = arguments.take("default_value", Text(""));
  const bool falsy_too = flag(arguments, "boolean", false);
  return input.is_undefined() || (falsy_too && !is_true(input)) ? missing : input;
}

Value tojson(const Value& input, Arguments& arguments, Render& render) {
  JsonStyle style;
  // Named arguments are those of Python's json.dumps, positional ones those of Jinja's filter.
  if (const Value indent = arguments.take("indent", Value::none()); !indent.is_none()) {
    style.indent = std::clamp<int64_t>(as_integer(indent, "tojson: indent"), 0, 100);
    style.item_separator = ",";
  }
  style.ascii = flag(arguments, "ensure_ascii", false);
  style.sort_keys = flag(arguments, "sort_keys", false);
  if (const Value separators = arguments.take("separators", Value::none()); !separators.is_none()) {
    const List* pair = separators.list();
    if (!pair || pair->items.size() != 2) fail_template("tojson: separators needs two of them");
    style.item_separator = as_text(pair->items[0], "tojson: separators").bytes();
    style.key_separator = as_text(pair->items[1], "tojson: separators").bytes();
  }
  Text json = to_json(input, style);
  render.charge(json.size());
  return json;
}

Value from_json_filter(const Value& input, Arguments&, Render& render) {
  const Text& text = as_text(input, "from_json");
  render.charge(text.size() * 8);
  const bool written = text.empty() || text.from(0) == Text::From::kTemplate;
  return from_json(text.bytes(), written ? Text::From::kTemplate : Text::From::kUser);
}

Value indent(const Value& input, Arguments& arguments, Render& render) {
  const Value width = arguments.take("width", Value::integer(4));
  const bool first = flag(arguments, "first", false), blank = flag(arguments, "blank", false);
  const std::string space =
      width.text()
          ? width.text()->bytes()
          : std::string(static_cast<size_t>(std::clamp<int64_t>(as_integer(width, "indent"), 0, 1000)), ' ');
  // A final line feed ends a last, empty line.
  const std::vector<Text> lines = split(as_text(input, "indent"), "\n", -1);
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n");
    if (i == 0 ? first : blank || !lines[i].empty()) out.append(space);
    out.append(lines[i]);
    render.charge(space.size() + lines[i].size() + 1);
  }
  return out;
}

// Parses the number that is the complete text, else returns no value.
template <class Number>
std::optional<Number> read_number(const Text& text) {
  const Text stripped = strip(text, nullptr, Sides::kBoth);
  Number number{};
  const char* const end = stripped.bytes().data() + stripped.size();
  const char* const begin = stripped.bytes().data() + (stripped.bytes().starts_with('+') ? 1 : 0);
  const auto [rest, error] = std::from_chars(begin, end, number);
  return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

Value int_filter(const Value& input, Arguments& arguments, Render&) {
  const Value missing = arguments.take("default", Value::integer(0));
  if (const auto integer = input.integer()) return Value::integer(*integer);
  std::optional<double> number = input.number();
  if (input.text()) {
    if (const auto integer = read_number<int64_t>(*input.text())) return Value::integer(*integer);
    number = read_number<double>(*input.text());
  }
  return number && std::fabs(*number) < 9e18 ? Value::integer(static_cast<int64_t>(*number)) : missing;
}

Value float_filter(const Value& input, Arguments& arguments, Render&) {
  const Value missing = arguments.take("default", Value::real(0.0));
  const auto number = input.text() ? read_number<double>(*input.text()) : input.number();
  return number ? Value::real(*number) : missing;
}

Value first(const Value& input, Arguments&, Render&) {
  const std::vector<Value> items = get_items(input);
  return items.empty() ? Value::undefined("the first of nothing") : items.front();
}

Value last(const Value& input, Arguments&, Render&) {
  const std::vector<Value> items = get_items(input);
  return items.empty() ? Value::undefined("the last of nothing") : items.back();
}

Value list_filter(const Value& input, Arguments&, Render& render) {
  std::vector<Value> items = get_items(input);
  render.charge(items.size() * sizeof(Value));
  return Value::list(std::move(items));
}

Value items_filter(const Value& input, Arguments&, Render&) {
  if (input.is_undefined()) return Value::list({});
  if (!input.dict()) fail_template("items: needs a mapping, not a ", input.type_name());
  std::vector<Value> items;
  for (const auto& [key, value] : input.dict()->items) items.push_back(Value::list({key, value}, true));
  return Value::list(std::move(items));
}

Value reverse(const Value& input, Arguments&, Render&) {
  return get_slice(input, Value::none(), Value::none(), Value::integer(-1));
}

Value length_filter(const Value& input, Arguments&, Render&) { return Value::integer(length(input)); }

Value abs_filter(const Value& input, Arguments&, Render&) {
  if (!input.number()) fail_template("abs: needs a number, not a ", input.type_name());
  return *input.number() < 0 ? negate(input) : input;
}

Value trim(const Value& input, Arguments& arguments, Render& render) {
  const Value chars = arguments.take("chars", Value::none());
  const Text text = to_text(input);
  render.charge(text.size());
  return strip(text, chars.is_none() ? nullptr : &as_text(chars, "trim").bytes(), Sides::kBoth);
}

Value replace_filter(const Value& input, Arguments& arguments, Render& render) {
  const Value old = arguments.take("old", Value()), with = arguments.take("new", Value());
  const Value count = arguments.take("count", Value::none());
  const Value method = *find_method(to_text(input), "replace");
  return method.callable()->call(render,
                                 std::vector<Value>{old, with, count.is_none() ? Value::integer(-1) : count});
}

template <Case kCase>
Value case_filter(const Value& input, Arguments&, Render& render) {
  const Text text = to_text(input);
  render.charge(text.size());
  return to_case(text, kCase);
}

Value string_filter(const Value& input, Arguments&, Render& render) {
  Text text = to_text(input);
  render.charge(text.size());
  return text;
}

// Output is never escaped, so every value is safe.
Value safe(const Value& input, Arguments&, Render&) { return to_text(input); }

Value format_filter(const Value& input, Arguments& arguments, Render& render) {
  const Text text = format_percent(as_text(input, "format"), arguments.take_rest());
  render.charge(text.size());
  return text;
}

// Returns lists of `linecount` items; the last one is filled with `fill_with`, unless it is None.
Value batch(const Value& input, Arguments& arguments, Render& render) {
  const int64_t size = as_integer(arguments.take("linecount", Value()), "batch");
  const Value fill = arguments.take("fill_with", Value::none());
  if (size < 1) fail_template("batch: needs at least 1 item per list");
  std::vector<Value> batches, current;
  const auto end_batch = [&] { batches.push_back(Value::list(std::exchange(current, {}))); };
  for (const Value& item : get_items(input)) {
    if (std::ssize(current) == size) end_batch();
    render.charge(sizeof(Value));
    current.push_back(item);
  }
  if (current.empty()) return Value::list(std::move(batches));
  for (; !fill.is_none() && std::ssize(current) < size; render.charge(sizeof(Value))) current.push_back(fill);
  end_batch();
  return Value::list(std::move(batches));
}

// Returns pairs of a value of the attribute and the items that have it, sorted by the value. A pair's
// attributes are grouper and list.
Value groupby(const Value& input, Arguments& arguments, Render& render) {
  const Value attribute = arguments.take("attribute", Value());
  const std::optional<Value> missing = arguments.take("default");
  const bool case_sensitive = flag(arguments, "case_sensitive", false);
  std::vector<Value> pairs;
  for (const Value& item : get_items(input)) {
    Value key = get_path(item, attribute);
    if (key.is_undefined() && missing) key = *missing;
    pairs.push_back(Value::list({key, item}, true));
    render.charge(sizeof(Value));
  }
  const Key key(Value::integer(0), case_sensitive);
  sort_by_key(pairs, key, /*reverse=*/false);
  std::vector<Value> groups, members;
  for (size_t i = 0; i < pairs.size(); ++i) {
    members.push_back(pairs[i].list()->items[1]);
    if (i + 1 < pairs.size() && is_equal(key.of(pairs[i]), key.of(pairs[i + 1]))) continue;
    const Value name = pairs[i + 1 - members.size()].list()->items[0];
    groups.push_back(Value::list({name, Value::list(std::exchange(members, {}))}, true));
    groups.back().list()->is_group = true;
  }
  return Value::list(std::move(groups));
}

Value round_filter(const Value& input, Arguments& arguments, Render&) {
  const int64_t precision = as_integer(arguments.take("precision", Value::integer(0)), "round");
  const Value method = arguments.take("method", Text("common"));
  const std::string& name = as_text(method, "round: method").bytes();
  if (!input.number()) fail_template("round: needs a number, not a ", input.type_name());
  if (precision < -300 || precision > 300) fail_template("round: needs a precision of -300 to 300");
  const double scale = std::pow(10.0, static_cast<double>(precision)), value = *input.number();
  if (name == "ceil") return Value::real(std::ceil(value * scale) / scale);
  if (name == "floor") return Value::real(std::floor(value * scale) / scale);
  if (name != "common") fail_template("round: method needs \"common\", \"ceil\" or \"floor\"");
  if (input.integer()) {
    if (precision >= 0) return input;
    return Value::integer(static_cast<int64_t>(std::nearbyint(value * scale) / scale));
  }
  if (precision < 0) return Value::real(std::nearbyint(value * scale) / scale);
  // Rounds the exact decimal value, as Python does.
  std::array<char, 700> digits;
  const auto [end, error] = std::to_chars(digits.begin(), digits.end(), value, std::chars_format::fixed,
                                          static_cast<int>(precision));
  double rounded = value;
  if (error == std::errc()) std::from_chars(digits.begin(), end, rounded);
  return Value::real(rounded);
}

struct NamedFilter {
  std::string_view name;
  Filter filter;
};
constexpr NamedFilter kFilters[] = {
    {"abs", abs_filter},
    {"batch", batch},
    {"capitalize", case_filter<Case::kCapitalized>},
    {"count", length_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dictsort},
    {"first", first},
    {"float", float_filter},
    {"format", format_filter},
    {"from_json", from_json_filter},
    {"groupby", groupby},
    {"indent", indent},
    {"int", int_filter},
    {"items", items_filter},
    {"join", join},
    {"last", last},
    {"length", length_filter},
    {"list", list_filter},
    {"lower", case_filter<Case::kLower>},
    {"map", map_filter},
    {"max", extreme<1>},
    {"min", extreme<-1>},
    {"reject", select<false, false>},
    {"rejectattr", select<true, false>},
    {"replace", replace_filter},
    {"reverse", reverse},
    {"round", round_filter},
    {"safe", safe},
    {"select", select<false, true>},
    {"selectattr", select<true, true>},
    {"sort", sort_filter},
    {"string", string_filter},
    {"sum", sum},
    {"title", case_filter<Case::kTitle>},
    {"tojson", tojson},
    {"trim", trim},
    {"unique", unique},
    {"upper", case_filter<Case::kUpper>},
};

}  // namespace

Filter find_filter(std::string_view name) {
  for (const NamedFilter& entry : kFilters)
    if (entry.name == name) return entry.filter;
  return nullptr;
}

}  // namespace attend::chat_template
