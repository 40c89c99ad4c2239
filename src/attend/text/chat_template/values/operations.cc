#include <algorithm>
#include <charconv>
#include <cmath>

#include "attend/text/chat_template/values/builtins.h"

namespace attend::chat_template {
namespace {

[[noreturn]] void reject_operands(std::string_view op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b})
    if (const Undefined* undefined = value->get<Undefined>())
      fail_template("'", undefined->name, "' is undefined");
  fail_template("a ", a.type_name(), " ", op, " a ", b.type_name(), ": not supported");
}

// `value` is a reference, since the overflowing operation writes it while the arguments are evaluated, in any
// order.
Value checked_integer(bool overflow, const int64_t& value) {
  if (overflow) fail_template("an integer beyond 64 bits");
  return Value::integer(value);
}

int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

Value apply_to_integers(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Operator::kAdd:
      return checked_integer(__builtin_add_overflow(a, b, &result), result);
    case Operator::kSubtract:
      return checked_integer(__builtin_sub_overflow(a, b, &result), result);
    case Operator::kMultiply:
      return checked_integer(__builtin_mul_overflow(a, b, &result), result);
    case Operator::kDivide:
      if (b == 0) fail_template("division by zero");
      return Value::real(static_cast<double>(a) / static_cast<double>(b));
    case Operator::kFloorDivide:
      if (b == 0) fail_template("division by zero");
      if (b == -1) return checked_integer(__builtin_sub_overflow(int64_t{0}, a, &result), result);
      return Value::integer(floor_divide(a, b));
    case Operator::kModulo:
      if (b == 0) fail_template("division by zero");
      return Value::integer(b == -1 ? 0 : a - b * floor_divide(a, b));
    case Operator::kPower:
      break;
  }
  if (b < 0) return Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)));
  result = 1;
  bool overflow = false;
  for (int64_t i = 0; i < b && !overflow && a != 1 && a != 0 && a != -1; ++i)
    overflow = __builtin_mul_overflow(result, a, &result);
  if (a == 0) result = b == 0;
  if (a == -1) result = b % 2 == 0 ? 1 : -1;
  return checked_integer(overflow, result);
}

Value apply_to_floats(Operator op, double a, double b) {
  if (b == 0.0 && op != Operator::kAdd && op != Operator::kSubtract && op != Operator::kMultiply &&
      op != Operator::kPower)
    fail_template("division by zero");
  switch (op) {
    case Operator::kAdd:
      return Value::real(a + b);
    case Operator::kSubtract:
      return Value::real(a - b);
    case Operator::kMultiply:
      return Value::real(a * b);
    case Operator::kDivide:
      return Value::real(a / b);
    case Operator::kFloorDivide:
      return Value::real(std::floor(a / b));
    case Operator::kModulo:
      return Value::real(a - b * std::floor(a / b));
    case Operator::kPower:
      break;
  }
  return Value::real(std::pow(a, b));
}

// Repeats a str or a list.
Value repeat(const Value& value, int64_t times, Render& render) {
  const size_t size = value.text() ? value.text()->size() : value.list()->items.size();
  const size_t count = times < 0 || size == 0 ? 0 : static_cast<size_t>(times);
  if (count > static_cast<size_t>(Render::kMaxBytes) / (size + 16))
    fail_template("makes more than ", std::to_string(Render::kMaxBytes), " bytes of text");
  // The constant covers the cost of many small appends.
  render.charge((size * (value.text() ? 1 : sizeof(Value)) + 16) * count);
  if (value.text()) {
    Text text;
    for (size_t i = 0; i < count; ++i) text.append(*value.text());
    return text;
  }
  std::vector<Value> items;
  for (size_t i = 0; i < count; ++i)
    items.insert(items.end(), value.list()->items.begin(), value.list()->items.end());
  return Value::list(std::move(items), value.list()->is_tuple);
}

Value concatenate(const Value& a, const Value& b, Render& render) {
  if (a.text()) {
    Text text = *a.text();
    text.append(*b.text());
    render.charge(text.size());
    return text;
  }
  std::vector<Value> items = a.list()->items;
  items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
  render.charge(items.size() * sizeof(Value));
  return Value::list(std::move(items), a.list()->is_tuple);
}

constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};

// Returns an attribute other than a mapping's key.
std::optional<Value> builtin_attribute(const Value& value, const std::string& name) {
  if (const Undefined* undefined = value.get<Undefined>())
    fail_template("'", undefined->name, "' is undefined");
  if (Namespace* name_space = value.name_space())
    if (const Value* found = name_space->find(name)) return *found;
  if (const Loop* loop = value.loop())
    if (auto found = loop->attribute(name)) return found;
  if (const List* list = value.list(); list && list->is_group) {
    if (name == "grouper") return list->items[0];
    if (name == "list") return list->items[1];
  }
  return find_method(value, name);
}

// Returns the indices of a slice, like Python's slice.indices().
std::vector<size_t> slice_indices(int64_t size, const Value& start, const Value& stop, int64_t step) {
  const auto bound = [&](const Value& value, int64_t missing) {
    if (value.is_none()) return missing;
    const auto index = value.integer();
    if (!index) fail_template("a slice needs an int, not a ", value.type_name());
    const int64_t at = *index < 0 ? *index + size : *index;
    return step > 0 ? std::clamp(at, int64_t{0}, size) : std::clamp(at, int64_t{-1}, size - 1);
  };
  const int64_t from = bound(start, step > 0 ? 0 : size - 1);
  const int64_t to = bound(stop, step > 0 ? size : -1);
  std::vector<size_t> indices;
  for (int64_t i = from; step > 0 ? i < to : i > to; i += step) {
    indices.push_back(static_cast<size_t>(i));
    if (step > size || step < -size) break;
  }
  return indices;
}

}  // namespace

Value apply(Operator op, const Value& a, const Value& b, Render& render) {
  if (const auto x = a.integer(), y = b.integer(); x && y) return apply_to_integers(op, *x, *y);
  if (const auto x = a.number(), y = b.number(); x && y) return apply_to_floats(op, *x, *y);
  const bool lists = a.list() && b.list() && a.list()->is_tuple == b.list()->is_tuple;
  if (op == Operator::kAdd && ((a.text() && b.text()) || lists)) return concatenate(a, b, render);
  if (op == Operator::kMultiply) {
    if ((a.text() || a.list()) && b.integer()) return repeat(a, *b.integer(), render);
    if ((b.text() || b.list()) && a.integer()) return repeat(b, *a.integer(), render);
  }
  if (op == Operator::kModulo && a.text()) {
    const List* list = b.list();
    return format_percent(*a.text(), list && list->is_tuple ? list->items : std::vector<Value>{b});
  }
  reject_operands(kSigns[static_cast<int>(op)], a, b);
}

Value negate(const Value& value) {
  if (const auto number = value.integer()) return apply_to_integers(Operator::kSubtract, 0, *number);
  if (const auto number = value.number()) return Value::real(-*number);
  fail_template("a ", value.type_name(), " has no negative");
}

Value get_attribute(const Value& value, const std::string& name) {
  if (auto found = builtin_attribute(value, name)) return *found;
  if (const Dict* dict = value.dict())
    if (const Value* found = dict->find(Text(name))) return *found;
  return Value::undefined(name);
}

Value get_subscript(const Value& value, const Value& key) {
  if (const Undefined* undefined = value.get<Undefined>())
    fail_template("'", undefined->name, "' is undefined");
  if (const Dict* dict = value.dict())
    if (const Value* found = dict->find(key)) return *found;
  if (const auto index = key.integer(); index && (value.list() || value.text())) {
    const int64_t size = length(value);
    const int64_t at = *index < 0 ? *index + size : *index;
    if (at < 0 || at >= size) return Value::undefined("an index out of range");
    if (value.list()) return value.list()->items[static_cast<size_t>(at)];
    const std::vector<size_t> offsets = char_offsets(*value.text());
    return value.text()->part(offsets[static_cast<size_t>(at)], offsets[static_cast<size_t>(at) + 1]);
  }
  if (const Text* name = key.text())
    return builtin_attribute(value, name->bytes()).value_or(Value::undefined(name->bytes()));
  return Value::undefined("a subscript");
}

Value get_slice(const Value& value, const Value& start, const Value& stop, const Value& step) {
  const Text* text = value.text();
  if (!text && !value.list()) {
    if (const Undefined* undefined = value.get<Undefined>())
      fail_template("'", undefined->name, "' is undefined");
    fail_template("a ", value.type_name(), " cannot be sliced");
  }
  int64_t stride = 1;
  if (!step.is_none()) {
    const auto given = step.integer();
    if (!given || *given == 0) fail_template("the step of a slice needs an int other than 0");
    stride = std::clamp(*given, -INT64_MAX / 4, INT64_MAX / 4);
  }
  const std::vector<size_t> indices = slice_indices(length(value), start, stop, stride);
  if (text) {
    Text part;
    const std::vector<size_t> offsets = char_offsets(*text);
    if (stride == 1 && !indices.empty())
      return text->part(offsets[indices.front()], offsets[indices.back() + 1]);
    for (const size_t i : indices) part.append(text->part(offsets[i], offsets[i + 1]));
    return part;
  }
  std::vector<Value> items;
  for (const size_t i : indices) items.push_back(value.list()->items[i]);
  return Value::list(std::move(items), value.list()->is_tuple);
}

Value get_path(Value value, const Value& path) {
  if (path.integer()) return get_subscript(value, path);
  if (!path.text()) fail_template("attribute: needs a str, not a ", path.type_name());
  for (const Text& part : split(*path.text(), ".", -1)) {
    int64_t index = 0;
    const char* const end = part.bytes().data() + part.size();
    const auto [rest, error] = std::from_chars(part.bytes().data(), end, index);
    const bool digits = error == std::errc() && rest == end && !part.empty() && part.bytes()[0] != '-';
    value = get_subscript(value, digits ? Value::integer(index) : Value(part));
  }
  return value;
}

}  // namespace attend::chat_template
