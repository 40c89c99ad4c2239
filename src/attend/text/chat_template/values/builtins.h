// Operators, attributes, filters, tests, methods and functions, as Python and Jinja have them.
#pragma once

#include "attend/text/chat_template/values/render.h"

namespace attend::chat_template {

using Filter = Value (*)(const Value& input, Arguments& arguments, Render& render);
// Null: there is none of this name.
Filter find_filter(std::string_view name);

using Test = bool (*)(const Value& input, Arguments& arguments);
Test find_test(std::string_view name);

// A method bound to its value; nothing if values of this type have no such method.
std::optional<Value> find_method(const Value& value, const std::string& name);
// Whether values of any type have it.
bool is_method(std::string_view name);

// The functions that every template sees: namespace, raise_exception, range, strftime_now, dict.
const std::vector<std::pair<std::string, Value>>& global_functions();

// "..." % values
Text format_percent(const Text& format, const std::vector<Value>& values);

// An argument as what it has to be. Complain naming it.
const Text& as_text(const Value& value, std::string_view what);
int64_t as_integer(const Value& value, std::string_view what);

enum class Operator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

Value apply(Operator op, const Value& a, const Value& b, Render& render);
Value negate(const Value& value);

// value.name: a method or an attribute, else a key; undefined where it has none.
Value get_attribute(const Value& value, const std::string& name);
// value[key]: a key or an index, else a method or an attribute.
Value get_subscript(const Value& value, const Value& key);
// value[start:stop:step]; none where left out.
Value get_slice(const Value& value, const Value& start, const Value& stop, const Value& step);
// By dots: "function.name", as the filters' `attribute` has it.
Value get_path(Value value, const Value& path);

}  // namespace attend::chat_template
