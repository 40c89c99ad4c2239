// Operators, attributes and subscripts, as Python and Jinja have them.
#pragma once

#include "attend/text/chat_template/syntax/render.h"

namespace attend::chat {

enum class Operator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

Value apply(Operator op, const Value& a, const Value& b, Render& render);
Value negate(const Value& value);

// value.name: a method or an attribute, else a key; undefined where it has none.
Value attribute_of(const Value& value, const std::string& name);
// value[key]: a key or an index, else a method or an attribute.
Value subscript_of(const Value& value, const Value& key);
// value[start:stop:step]; none where left out.
Value slice_of(const Value& value, const Value& start, const Value& stop, const Value& step);
// By dots: "function.name", as the filters' `attribute` has it.
Value path_of(Value value, const Value& path);

}  // namespace attend::chat
