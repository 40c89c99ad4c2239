// Filters, tests, methods and functions, by name.
#pragma once

#include "attend/text/chat_template/syntax/render.h"

namespace attend::chat {

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

}  // namespace attend::chat
