// Operators, attributes, filters, tests, methods and functions with the semantics of Python and Jinja.
#pragma once

#include "attend/text/chat_template/values/render.h"

namespace attend::chat_template {

using Filter = Value (*)(const Value& input, Arguments& arguments, Render& render);
// Returns null for an unknown name.
Filter find_filter(std::string_view name);

using Test = bool (*)(const Value& input, Arguments& arguments);
Test find_test(std::string_view name);

// Returns a method bound to its value, or no value if the type has no such method.
std::optional<Value> find_method(const Value& value, const std::string& name);
// Returns true if any type has a method with this name.
bool is_method(std::string_view name);

// Functions available to every template: namespace, raise_exception, range, strftime_now, dict.
const std::vector<std::pair<std::string, Value>>& global_functions();

// Operator "..." % values.
Text format_percent(const Text& format, const std::vector<Value>& values);

// Converts an argument. Throws TemplateError that names `what` if it has another type.
const Text& as_text(const Value& value, std::string_view what);
int64_t as_integer(const Value& value, std::string_view what);

enum class Operator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

Value apply(Operator op, const Value& a, const Value& b, Render& render);
Value negate(const Value& value);

// Evaluates value.name: a method or an attribute, else a key, else undefined.
Value get_attribute(const Value& value, const std::string& name);
// Evaluates value[key]: a key or an index, else a method or an attribute.
Value get_subscript(const Value& value, const Value& key);
// Evaluates value[start:stop:step]; omitted bounds are None.
Value get_slice(const Value& value, const Value& start, const Value& stop, const Value& step);
// Evaluates a dotted path such as "function.name", as in the `attribute` argument of filters.
Value get_path(Value value, const Value& path);

}  // namespace attend::chat_template
