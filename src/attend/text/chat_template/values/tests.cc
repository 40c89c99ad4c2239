// Tests: {% if value is name(argument) %}.
#include <cmath>

#include "attend/text/chat_template/values/builtins.h"

namespace attend::chat_template {
namespace {

Value other(Arguments& arguments) { return arguments.take("other", Value()); }

struct NamedTest {
  std::string_view name;
  Test test;
};

bool is_text_case(const Value& input, Case which) {
  if (!input.text()) return false;
  // Like str.isupper: at least one character has a case, and no character has the other case.
  const Case opposite = which == Case::kUpper ? Case::kLower : Case::kUpper;
  return to_case(*input.text(), which) == *input.text() &&
         !(to_case(*input.text(), opposite) == *input.text());
}

constexpr NamedTest kTests[] = {
    {"boolean", [](const Value& input, Arguments&) { return input.get<bool>() != nullptr; }},
    {"callable", [](const Value& input, Arguments&) { return input.callable() != nullptr; }},
    {"defined", [](const Value& input, Arguments&) { return !input.is_undefined(); }},
    {"divisibleby",
     [](const Value& input, Arguments& arguments) {
       const int64_t by = as_integer(other(arguments), "divisibleby");
       if (by == 0) fail_template("divisibleby: division by zero");
       return by == -1 || as_integer(input, "divisibleby") % by == 0;
     }},
    {"eq", [](const Value& input, Arguments& arguments) { return is_equal(input, other(arguments)); }},
    {"equalto", [](const Value& input, Arguments& arguments) { return is_equal(input, other(arguments)); }},
    {"==", [](const Value& input, Arguments& arguments) { return is_equal(input, other(arguments)); }},
    {"even", [](const Value& input, Arguments&) { return as_integer(input, "even") % 2 == 0; }},
    {"false", [](const Value& input, Arguments&) { return input.get<bool>() && !*input.get<bool>(); }},
    {"float", [](const Value& input, Arguments&) { return input.get<double>() != nullptr; }},
    {"ge", [](const Value& input, Arguments& arguments) { return compare(input, other(arguments)) >= 0; }},
    {"gt", [](const Value& input, Arguments& arguments) { return compare(input, other(arguments)) > 0; }},
    {"in", [](const Value& input, Arguments& arguments) { return contains(other(arguments), input); }},
    {"integer", [](const Value& input, Arguments&) { return input.get<int64_t>() || input.big_integer(); }},
    {"iterable",
     [](const Value& input, Arguments&) {
       return input.is_undefined() || input.text() || input.list() || input.dict();
     }},
    {"le", [](const Value& input, Arguments& arguments) { return compare(input, other(arguments)) <= 0; }},
    {"lower", [](const Value& input, Arguments&) { return is_text_case(input, Case::kLower); }},
    {"lt", [](const Value& input, Arguments& arguments) { return compare(input, other(arguments)) < 0; }},
    {"mapping", [](const Value& input, Arguments&) { return input.dict() != nullptr; }},
    {"ne", [](const Value& input, Arguments& arguments) { return !is_equal(input, other(arguments)); }},
    {"none", [](const Value& input, Arguments&) { return input.is_none(); }},
    {"number", [](const Value& input, Arguments&) { return input.number().has_value(); }},
    {"odd", [](const Value& input, Arguments&) { return as_integer(input, "odd") % 2 != 0; }},
    {"sameas",
     [](const Value& input, Arguments& arguments) {
       const Value second = other(arguments);
       if (input.list() || input.dict())
         return input.list() == second.list() && input.dict() == second.dict();
       return input.type_name() == second.type_name() && is_equal(input, second);
     }},
    // A sequence in Python's sense has a length and items; an undefined value has both.
    {"sequence",
     [](const Value& input, Arguments&) {
       return input.is_undefined() || input.text() || input.list() || input.dict();
     }},
    {"string", [](const Value& input, Arguments&) { return input.text() != nullptr; }},
    {"true", [](const Value& input, Arguments&) { return input.get<bool>() && *input.get<bool>(); }},
    {"undefined", [](const Value& input, Arguments&) { return input.is_undefined(); }},
    {"upper", [](const Value& input, Arguments&) { return is_text_case(input, Case::kUpper); }},
};

}  // namespace

Test find_test(std::string_view name) {
  for (const NamedTest& entry : kTests)
    if (entry.name == name) return entry.test;
  return nullptr;
}

}  // namespace attend::chat_template
