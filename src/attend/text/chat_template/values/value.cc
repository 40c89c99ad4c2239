#include "attend/text/chat_template/values/value.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace attend::chat_template {
namespace {
constexpr int kMaxDepth = 200;
}  // namespace

// Checks that an item may be stored in a list or mapping, and computes the resulting depth.
struct Nesting {
  static void enter(const Value& item, int& depth) {
    if (item.name_space() || item.loop() || item.callable())
      fail_template("a ", item.type_name(), " cannot be an item of a list, a mapping or a namespace");
    int inner = 0;
    if (List* list = item.list()) {
      list->nested = true;
      inner = list->depth;
    } else if (Dict* dict = item.dict()) {
      dict->nested = true;
      inner = dict->depth;
    }
    depth = std::max(depth, inner + 1);
    if (depth > kMaxDepth)
      fail_template("values nested more than ", std::to_string(kMaxDepth), " levels deep");
  }
};

Value Value::list(std::vector<Value> items, bool is_tuple) {
  auto list = std::make_shared<List>();
  for (const Value& item : items) Nesting::enter(item, list->depth);
  list->items = std::move(items);
  list->is_tuple = is_tuple;
  return Data(std::move(list));
}

Value Value::dict(std::vector<std::pair<Value, Value>> items) {
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : items) {
    if (key.list() || key.dict()) fail_template("a ", key.type_name(), " cannot be a key");
    Nesting::enter(key, dict->depth);
    Nesting::enter(value, dict->depth);
  }
  dict->items = std::move(items);
  return Data(std::move(dict));
}

namespace {

template <class T>
auto* pointee(const Value& value) {
  const std::shared_ptr<T>* held = value.get<std::shared_ptr<T>>();
  return held ? held->get() : nullptr;
}

}  // namespace

const Text* Value::text() const { return pointee<const Text>(*this); }
List* Value::list() const { return pointee<List>(*this); }
Dict* Value::dict() const { return pointee<Dict>(*this); }
Namespace* Value::name_space() const { return pointee<Namespace>(*this); }
const Loop* Value::loop() const { return pointee<const Loop>(*this); }
const Callable* Value::callable() const { return pointee<const Callable>(*this); }
const BigInteger* Value::big_integer() const { return pointee<const BigInteger>(*this); }

Value Value::big_integer(std::string digits) {
  const double value = std::strtod(digits.c_str(), nullptr);
  return Data(std::make_shared<const BigInteger>(BigInteger{std::move(digits), value}));
}

std::optional<int64_t> Value::integer() const {
  if (const bool* value = get<bool>()) return *value;
  if (const int64_t* value = get<int64_t>()) return *value;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const double* value = get<double>()) return *value;
  if (const BigInteger* big = big_integer()) return big->value;
  if (const auto value = integer()) return static_cast<double>(*value);
  return std::nullopt;
}

std::string_view Value::type_name() const {
  constexpr std::string_view kNames[] = {"undefined value", "None", "bool",     "int",
                                         "float",           "str",  "list",     "dict",
                                         "namespace",       "loop", "function", "int"};
  return kNames[data_.index()];
}

const Value* Dict::find(const Value& key) const {
  const auto found =
      std::find_if(items.begin(), items.end(), [&](const auto& item) { return is_equal(item.first, key); });
  return found == items.end() ? nullptr : &found->second;
}

Value* Namespace::find(std::string_view name) {
  ReadBudget::charge(items.size() * kBytesPerVisit);
  const auto found =
      std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.first == name; });
  return found == items.end() ? nullptr : &found->second;
}

std::optional<Value> Loop::attribute(std::string_view name) const {
  const auto size = static_cast<int64_t>(items->size());
  const auto index = static_cast<int64_t>(index0);
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(size - index);
  if (name == "revindex0") return Value::integer(size - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index == size - 1);
  if (name == "length") return Value::integer(size);
  if (name == "depth") return Value::integer(depth0 + 1);
  if (name == "depth0") return Value::integer(depth0);
  if (name == "previtem") return index > 0 ? (*items)[index0 - 1] : Value::undefined("loop.previtem");
  if (name == "nextitem") return index + 1 < size ? (*items)[index0 + 1] : Value::undefined("loop.nextitem");
  return std::nullopt;
}

void append(List& list, Value item) {
  if (list.is_tuple) fail_template("a tuple cannot be appended to");
  if (item.list() == &list || (list.nested && (item.list() || item.dict())))
    fail_template("append: a list that is an item of another one accepts no lists and no mappings");
  Nesting::enter(item, list.depth);
  list.items.push_back(std::move(item));
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const auto number = value.number()) return *number != 0.0;
  if (const Text* text = value.text()) return !text->empty();
  if (const List* list = value.list()) return !list->items.empty();
  if (const Dict* dict = value.dict()) return !dict->items.empty();
  return true;
}

bool is_equal(const Value& a, const Value& b) {
  ReadBudget::charge(kBytesPerVisit);
  if (const auto x = a.integer(), y = b.integer(); x && y) return *x == *y;
  if (const BigInteger* x = a.big_integer(), *y = b.big_integer(); x && y) return x->digits == y->digits;
  if (const auto x = a.number(), y = b.number(); x && y) return *x == *y;
  if (a.text() && b.text()) return *a.text() == *b.text();
  if (const List* x = a.list(), *y = b.list(); x && y)
    return x->is_tuple == y->is_tuple &&
           std::equal(x->items.begin(), x->items.end(), y->items.begin(), y->items.end(), is_equal);
  if (const Dict* x = a.dict(), *y = b.dict(); x && y)
    return x->items.size() == y->items.size() &&
           std::all_of(x->items.begin(), x->items.end(), [&](const auto& item) {
             const Value* other = y->find(item.first);
             return other && is_equal(item.second, *other);
           });
  if (a.name_space() || b.name_space()) return a.name_space() == b.name_space();
  if (a.loop() || b.loop()) return a.loop() == b.loop();
  if (a.callable() || b.callable()) return a.callable() == b.callable();
  return (a.is_undefined() && b.is_undefined()) || (a.is_none() && b.is_none());
}

int compare(const Value& a, const Value& b) {
  ReadBudget::charge(kBytesPerVisit);
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (const auto x = a.integer(), y = b.integer(); x && y) return order(*x, *y);
  if (const auto x = a.number(), y = b.number(); x && y) return order(*x, *y);
  // The order of UTF-8 bytes is the order of code points.
  if (a.text() && b.text()) ReadBudget::charge(std::min(a.text()->size(), b.text()->size()));
  if (a.text() && b.text()) return order(a.text()->bytes(), b.text()->bytes());
  if (const List* x = a.list(), *y = b.list(); x && y && x->is_tuple == y->is_tuple) {
    for (size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i)
      if (!is_equal(x->items[i], y->items[i])) return compare(x->items[i], y->items[i]);
    return order(x->items.size(), y->items.size());
  }
  fail_template("a ", a.type_name(), " and a ", b.type_name(), " have no order");
}

bool contains(const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    if (!item.text()) fail_template("'in' a str needs a str, not a ", item.type_name());
    return find(*text, item.text()->bytes()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) return dict->find(item) != nullptr;
  if (const List* list = container.list())
    return std::any_of(list->items.begin(), list->items.end(),
                       [&](const Value& other) { return is_equal(other, item); });
  if (container.is_undefined()) return false;
  fail_template("'in' needs a str, a list or a mapping, not a ", container.type_name());
}

int64_t length(const Value& value) {
  if (const Text* text = value.text()) return static_cast<int64_t>(count_chars(text->bytes()));
  if (const List* list = value.list()) return static_cast<int64_t>(list->items.size());
  if (const Dict* dict = value.dict()) return static_cast<int64_t>(dict->items.size());
  if (value.is_undefined()) return 0;
  fail_template("a ", value.type_name(), " has no length");
}

std::vector<Value> get_items(const Value& value) {
  if (const List* list = value.list()) ReadBudget::charge(list->items.size() * sizeof(Value));
  if (const List* list = value.list()) return list->items;
  std::vector<Value> items;
  if (const Dict* dict = value.dict()) {
    ReadBudget::charge(dict->items.size() * sizeof(Value));
    for (const auto& [key, item] : dict->items) items.push_back(key);
  } else if (const Text* text = value.text()) {
    const std::vector<size_t> offsets = char_offsets(*text);
    for (size_t i = 0; i + 1 < offsets.size(); ++i)
      items.emplace_back(text->part(offsets[i], offsets[i + 1]));
  } else if (!value.is_undefined()) {
    fail_template("a ", value.type_name(), " cannot be iterated");
  }
  return items;
}

}  // namespace attend::chat_template
