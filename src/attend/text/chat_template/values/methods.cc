// Methods of str, list and dict; global functions; both ways of formatting a text.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "attend/text/chat_template/values/builtins.h"
#include "attend/text/chat_template/values/print.h"

namespace attend::chat_template {
namespace {

using MethodBody = Value (*)(const Value& self, Arguments& arguments, Render& render);

struct Method {
  std::string_view name;
  MethodBody body;
};

Value text_list(const std::vector<Text>& texts, Render& render) {
  std::vector<Value> items;
  for (const Text& text : texts) {
    render.charge(text.size() + sizeof(Value));
    items.emplace_back(text);
  }
  return Value::list(std::move(items));
}

template <Sides kSides>
Value strip_method(const Value& self, Arguments& arguments, Render& render) {
  render.charge(self.text()->size());
  const Value chars = arguments.take("chars", Value::none());
  return strip(*self.text(), chars.is_none() ? nullptr : &as_text(chars, "strip").bytes(), kSides);
}

template <bool kFromRight>
Value split_method(const Value& self, Arguments& arguments, Render& render) {
  const Value separator = arguments.take("sep", Value::none());
  const int64_t max_splits = as_integer(arguments.take("maxsplit", Value::integer(-1)), "split");
  if (separator.is_none()) {
    if (kFromRight && max_splits >= 0) fail_template("rsplit: needs a separator");
    return text_list(split_at_white_space(*self.text(), max_splits), render);
  }
  const std::string& bytes = as_text(separator, "split").bytes();
  if (bytes.empty()) fail_template("split: an empty separator");
  const auto how = kFromRight ? split_from_right : split;
  return text_list(how(*self.text(), bytes, max_splits), render);
}

template <bool kEnd>
Value has_affix(const Value& self, Arguments& arguments, Render&) {
  const Value affix = arguments.take("prefix", Value());
  const auto fits = [&](const Value& value) {
    const std::string& bytes = as_text(value, kEnd ? "endswith" : "startswith").bytes();
    ReadBudget::charge(bytes.size());
    return kEnd ? self.text()->bytes().ends_with(bytes) : self.text()->bytes().starts_with(bytes);
  };
  const List* list = affix.list();
  if (!list || !list->is_tuple) return Value::boolean(fits(affix));
  return Value::boolean(std::any_of(list->items.begin(), list->items.end(), fits));
}

template <Case kCase>
Value case_method(const Value& self, Arguments&, Render& render) {
  render.charge(self.text()->size());
  return to_case(*self.text(), kCase);
}

Value replace_method(const Value& self, Arguments& arguments, Render& render) {
  const Value old = arguments.take("old", Value());
  const Value with = arguments.take("new", Value());
  const int64_t count = as_integer(arguments.take("count", Value::integer(-1)), "replace");
  const Text& text = *self.text();
  const Text& piece = as_text(with, "replace");
  render.charge(text.size());
  // Charges before building the result: a text of n bytes has at most n + 1 matches.
  if (const std::string& what = as_text(old, "replace").bytes(); what.size() <= text.size())
    render.charge(piece.size() * ((text.size() + 1) / std::max<size_t>(what.size(), 1)));
  return replace(text, as_text(old, "replace").bytes(), piece, count);
}

Value join_method(const Value& self, Arguments& arguments, Render& render) {
  Text joined;
  bool first = true;
  for (const Value& item : get_items(arguments.take("iterable", Value()))) {
    if (!first) joined.append(*self.text());
    first = false;
    joined.append(as_text(item, "join"));
    render.charge(self.text()->size() + item.text()->size());
  }
  return joined;
}

Value find_in_text(const Value& self, Arguments& arguments, Render&) {
  const Value what = arguments.take("sub", Value());
  const size_t at = find(*self.text(), as_text(what, "find").bytes());
  if (at == std::string::npos) return Value::integer(-1);
  return Value::integer(
      static_cast<int64_t>(count_chars(std::string_view(self.text()->bytes()).substr(0, at))));
}

Value count_in_text(const Value& self, Arguments& arguments, Render&) {
  const Value what = arguments.take("sub", Value());
  if (as_text(what, "count").empty()) return Value::integer(length(self) + 1);
  return Value::integer(static_cast<int64_t>(split(*self.text(), what.text()->bytes(), -1).size()) - 1);
}

// Formats "{} {0} {name}" without format specifications.
Value format_braces(const Value& self, Arguments& arguments, Render& render) {
  const std::vector<Value> positional = std::exchange(arguments.positional, {});
  const auto named = std::exchange(arguments.named, {});
  const Text& format = *self.text();
  const std::string& bytes = format.bytes();
  Text out;
  size_t next = 0;
  for (size_t at = 0; at < bytes.size();) {
    if (bytes.compare(at, 2, "{{") == 0 || bytes.compare(at, 2, "}}") == 0) {
      out.append(format.part(at, at + 1));
      at += 2;
      continue;
    }
    if (bytes[at] != '{') {
      const size_t end = std::min(bytes.find_first_of("{}", at + 1), bytes.size());
      out.append(format.part(at, end));
      at = end;
      continue;
    }
    const size_t end = bytes.find('}', at);
    const std::string field = end == bytes.npos ? "" : bytes.substr(at + 1, end - at - 1);
    if (end == bytes.npos || field.find_first_of(":!.[{") != field.npos)
      fail_template("format: '", bytes.substr(at), "': fields are {}, {0} and {name}");
    const bool numbered =
        !field.empty() && field.find_first_not_of("0123456789") == field.npos && field.size() < 6;
    const size_t index = numbered ? std::stoul(field) : field.empty() ? next++ : positional.size();
    const auto by_name =
        std::find_if(named.begin(), named.end(), [&](const auto& item) { return item.first == field; });
    if (index >= positional.size() && by_name == named.end())
      fail_template("format: no value for {", field, "}");
    const Text value = to_text(index < positional.size() ? positional[index] : by_name->second);
    render.charge(value.size());
    out.append(value);
    at = end + 1;
  }
  return out;
}

constexpr Method kTextMethods[] = {
    {"capitalize", case_method<Case::kCapitalized>},
    {"count", count_in_text},
    {"endswith", has_affix<true>},
    {"find", find_in_text},
    {"format", format_braces},
    {"join", join_method},
    {"lower", case_method<Case::kLower>},
    {"lstrip", strip_method<Sides::kLeft>},
    {"replace", replace_method},
    {"rsplit", split_method<true>},
    {"rstrip", strip_method<Sides::kRight>},
    {"split", split_method<false>},
    {"splitlines", [](const Value& self, Arguments&,
                      Render& render) { return text_list(split_lines(*self.text()), render); }},
    {"startswith", has_affix<false>},
    {"strip", strip_method<Sides::kBoth>},
    {"title", case_method<Case::kTitle>},
    {"upper", case_method<Case::kUpper>},
};

Value pop_from_list(const Value& self, Arguments& arguments, Render&) {
  List& list = *self.list();
  const auto size = static_cast<int64_t>(list.items.size());
  int64_t index = as_integer(arguments.take("index", Value::integer(-1)), "pop");
  if (index < 0) index += size;
  if (index < 0 || index >= size) fail_template("pop: an index out of range");
  ReadBudget::charge(static_cast<size_t>(size - index) * sizeof(Value));
  Value item = list.items[static_cast<size_t>(index)];
  list.items.erase(list.items.begin() + index);
  return item;
}

constexpr Method kListMethods[] = {
    {"append",
     [](const Value& self, Arguments& arguments, Render& render) {
       render.charge(sizeof(Value));
       append(*self.list(), arguments.take("object", Value()));
       return Value::none();
     }},
    {"count",
     [](const Value& self, Arguments& arguments, Render&) {
       const Value what = arguments.take("value", Value());
       const auto& items = self.list()->items;
       return Value::integer(std::count_if(items.begin(), items.end(),
                                           [&](const Value& item) { return is_equal(item, what); }));
     }},
    {"pop", pop_from_list},
};

Value pop_from_dict(const Value& self, Arguments& arguments, Render&) {
  Dict& dict = *self.dict();
  const Value key = arguments.take("key", Value());
  const std::optional<Value> missing = arguments.take("default");
  const Value* found = dict.find(key);
  if (!found && !missing) fail_template("pop: no such key");
  if (!found) return *missing;
  Value item = *found;
  std::erase_if(dict.items, [&](const auto& entry) { return is_equal(entry.first, key); });
  return item;
}

// Returns a list of the parts of each item that `take` selects.
template <class Take>
Value listed(const Value& self, Render& render, Take&& take) {
  std::vector<Value> items;
  for (const auto& item : self.dict()->items) items.push_back(take(item));
  render.charge(items.size() * sizeof(Value));
  return Value::list(std::move(items));
}

constexpr Method kDictMethods[] = {
    {"get",
     [](const Value& self, Arguments& arguments, Render&) {
       const Value key = arguments.take("key", Value());
       const Value missing = arguments.take("default", Value::none());
       const Value* found = self.dict()->find(key);
       return found ? *found : missing;
     }},
    {"items",
     [](const Value& self, Arguments&, Render& render) {
       return listed(self, render, [](const auto& item) {
         return Value::list({item.first, item.second}, true);
       });
     }},
    {"keys",
     [](const Value& self, Arguments&, Render& render) {
       return listed(self, render, [](const auto& item) { return item.first; });
     }},
    {"pop", pop_from_dict},
    {"values",
     [](const Value& self, Arguments&, Render& render) {
       return listed(self, render, [](const auto& item) { return item.second; });
     }},
};

Value cycle(const Value& self, Arguments& arguments, Render&) {
  const std::vector<Value> values = arguments.take_rest();
  if (values.empty()) fail_template("loop.cycle: needs at least one value");
  return values[self.loop()->index0 % values.size()];
}

constexpr Method kLoopMethods[] = {{"cycle", cycle}};

// Methods of Python's dict that templates here do not support. They still hide keys with the same name.
constexpr std::string_view kOtherDictMethods[] = {"clear",   "copy",       "fromkeys",
                                                  "popitem", "setdefault", "update"};

class BoundMethod : public Callable {
 public:
  BoundMethod(Value self, std::string_view name, MethodBody body)
      : self_(std::move(self)), name_(name), body_(body) {}
  Value call(Render& render, Arguments arguments) const override {
    if (!body_) fail_template("method ", name_, " is not supported");
    Value result = body_(self_, arguments, render);
    arguments.finish(name_);
    return result;
  }

 private:
  Value self_;
  std::string_view name_;
  MethodBody body_;
};

Value bound_method(const Value& self, std::string_view name, MethodBody body) {
  return Value::Data(std::shared_ptr<const Callable>(std::make_shared<BoundMethod>(self, name, body)));
}

const Method* find_in(std::span<const Method> methods, std::string_view name) {
  const auto found =
      std::find_if(methods.begin(), methods.end(), [&](const Method& method) { return method.name == name; });
  return found == methods.end() ? nullptr : &*found;
}

class Function : public Callable {
 public:
  using Body = Value (*)(Arguments& arguments, Render& render);
  Function(std::string_view name, Body body) : name_(name), body_(body) {}
  Value call(Render& render, Arguments arguments) const override {
    Value result = body_(arguments, render);
    arguments.finish(name_);
    return result;
  }

 private:
  std::string_view name_;
  Body body_;
};

Value make_namespace(Arguments& arguments, Render&) {
  auto made = std::make_shared<Namespace>();
  if (const auto start = arguments.take("__self")) {
    if (!start->dict()) fail_template("namespace: needs a mapping, not a ", start->type_name());
    for (const auto& [key, value] : start->dict()->items)
      made->items.emplace_back(as_text(key, "namespace").bytes(), value);
  }
  for (auto& [name, value] : std::exchange(arguments.named, {})) {
    if (value.name_space() || value.loop() || value.callable())
      fail_template("a ", value.type_name(), " cannot be an item of a list, a mapping or a namespace");
    if (Value* known = made->find(name))
      *known = std::move(value);
    else
      made->items.emplace_back(name, std::move(value));
  }
  return Value::Data(std::move(made));
}

Value make_dict(Arguments& arguments, Render&) {
  std::vector<std::pair<Value, Value>> items;
  for (auto& [name, value] : std::exchange(arguments.named, {}))
    items.emplace_back(Text(name), std::move(value));
  return Value::dict(std::move(items));
}

Value make_range(Arguments& arguments, Render& render) {
  constexpr int64_t kLongest = 100'000;
  int64_t start = 0, stop = as_integer(arguments.take("stop", Value()), "range");
  if (const auto second = arguments.take("second")) {
    start = stop;
    stop = as_integer(*second, "range");
  }
  const int64_t step = as_integer(arguments.take("step", Value::integer(1)), "range");
  if (step == 0) fail_template("range: a step of 0");
  std::vector<Value> items;
  for (__int128 i = start; step > 0 ? i < stop : i > stop; i += step) {
    if (static_cast<int64_t>(items.size()) == kLongest)
      fail_template("range: more than ", std::to_string(kLongest), " items");
    items.push_back(Value::integer(static_cast<int64_t>(i)));
  }
  render.charge(items.size() * sizeof(Value));
  return Value::list(std::move(items));
}

Value raise(Arguments& arguments, Render&) {
  throw TemplateError{to_text(arguments.take("message", Value())).bytes(), true};
}

Value format_now(Arguments& arguments, Render& render) {
  const Value format = arguments.take("format", Value());
  std::tm local{};
  localtime_r(&render.now, &local);
  std::array<char, 512> buffer;
  return Text(std::string(
      buffer.data(),
      std::strftime(buffer.data(), buffer.size(), as_text(format, "strftime_now").bytes().c_str(), &local)));
}

Value format_percent_value(const Value& value, char type) {
  if (type == 's') return to_text(value);
  const auto number = value.number();
  if (!number) fail_template("'%", std::string(1, type), "' needs a number, not a ", value.type_name());
  if (type == 'd')
    return Text(
        fmt::format("{}", value.integer().value_or(static_cast<int64_t>(std::clamp(*number, -9e18, 9e18)))));
  return Text(fmt::format("{:f}", *number));
}

}  // namespace

std::optional<Value> find_method(const Value& value, const std::string& name) {
  const Method* method = value.text()   ? find_in(kTextMethods, name)
                         : value.list() ? find_in(kListMethods, name)
                         : value.dict() ? find_in(kDictMethods, name)
                         : value.loop() ? find_in(kLoopMethods, name)
                                        : nullptr;
  if (method) return bound_method(value, method->name, method->body);
  if (value.dict())
    for (const std::string_view other : kOtherDictMethods)
      if (other == name) return bound_method(value, other, nullptr);
  return std::nullopt;
}

bool is_method(std::string_view name) {
  return find_in(kTextMethods, name) || find_in(kListMethods, name) || find_in(kDictMethods, name) ||
         find_in(kLoopMethods, name);
}

const std::vector<std::pair<std::string, Value>>& global_functions() {
  const auto function = [](std::string_view name, Function::Body body) {
    return std::pair<std::string, Value>(
        name, Value::Data(std::shared_ptr<const Callable>(std::make_shared<Function>(name, body))));
  };
  static const std::vector<std::pair<std::string, Value>> functions = {
      function("namespace", make_namespace), function("raise_exception", raise),
      function("range", make_range), function("strftime_now", format_now), function("dict", make_dict)};
  return functions;
}

Text format_percent(const Text& format, const std::vector<Value>& values) {
  const std::string& bytes = format.bytes();
  Text out;
  size_t next = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t sign = std::min(bytes.find('%', at), bytes.size());
    out.append(format.part(at, sign));
    at = sign + 2;
    if (sign == bytes.size()) break;
    const char type = sign + 1 < bytes.size() ? bytes[sign + 1] : '\0';
    if (type == '%') {
      out.append(format.part(sign, sign + 1));
      continue;
    }
    if (type != 's' && type != 'd' && type != 'f') fail_template("'%' formats with %s, %d, %f and %%");
    if (next == values.size()) fail_template("'%': more fields than values");
    out.append(*format_percent_value(values[next++], type).text());
  }
  if (next != values.size()) fail_template("'%': more values than fields");
  return out;
}

const Text& as_text(const Value& value, std::string_view what) {
  if (const Undefined* undefined = value.get<Undefined>())
    fail_template(what, ": needs a str; '", undefined->name, "' is undefined");
  if (!value.text()) fail_template(what, ": needs a str, not a ", value.type_name());
  return *value.text();
}

int64_t as_integer(const Value& value, std::string_view what) {
  const auto integer = value.integer();
  if (!integer) fail_template(what, ": needs an int, not a ", value.type_name());
  return *integer;
}

}  // namespace attend::chat_template
