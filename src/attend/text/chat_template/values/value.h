// Values of a template: the Python types that chat templates use.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "attend/text/chat_template/values/text.h"

namespace attend::chat_template {

// Error of a template, or a rejection by raise_exception. The renderer adds the location.
struct TemplateError {
  std::string message;
  bool raised = false;  // raised by the template itself
};

template <class... Parts>
[[noreturn]] void fail_template(const Parts&... parts) {
  std::string message;
  (message.append(parts), ...);
  throw TemplateError{std::move(message), false};
}

struct List;
struct Dict;
struct Namespace;
struct Loop;
class Callable;
class Render;

struct Undefined {
  std::string name;
};
struct None {};
// Whole number that does not fit into int64_t. Arithmetic uses the float next to it.
struct BigInteger {
  std::string digits;  // with a sign if it is negative
  double value = 0.0;
};

// Value of a template. Lists, mappings and namespaces are shared by reference, as in Python.
class Value {
 public:
  using Data =
      std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>, std::shared_ptr<List>,
                   std::shared_ptr<Dict>, std::shared_ptr<Namespace>, std::shared_ptr<const Loop>,
                   std::shared_ptr<const Callable>, std::shared_ptr<const BigInteger>>;

  Value() : data_(Undefined{}) {}
  Value(Data data) : data_(std::move(data)) {}
  Value(Text text) : data_(std::make_shared<const Text>(std::move(text))) {}
  static Value undefined(std::string_view name) { return Data(Undefined{std::string(name)}); }
  static Value none() { return Data(None{}); }
  static Value boolean(bool value) { return Data(value); }
  static Value integer(int64_t value) { return Data(value); }
  static Value real(double value) { return Data(value); }
  static Value big_integer(std::string digits);
  static Value text(std::string_view bytes) { return Text(bytes); }
  // Items of lists and mappings may be nested 200 levels deep. Namespaces, loops and macros cannot be items.
  static Value list(std::vector<Value> items, bool is_tuple = false);
  static Value dict(std::vector<std::pair<Value, Value>> items);

  template <class T>
  const T* get() const {
    return std::get_if<T>(&data_);
  }
  const Text* text() const;  // null if it is not a text; the next ones likewise
  List* list() const;
  Dict* dict() const;
  Namespace* name_space() const;
  const Loop* loop() const;
  const Callable* callable() const;
  const BigInteger* big_integer() const;
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_none() const { return get<None>() != nullptr; }
  // A bool counts as a number, as in Python.
  std::optional<int64_t> integer() const;
  std::optional<double> number() const;

  // Returns Python's name of the type ("str", "list", ...) for messages.
  std::string_view type_name() const;

 private:
  friend struct Nesting;
  Data data_;
};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  bool is_group = false;  // pair of groupby, with the attributes grouper and list
  int depth = 1;
  bool nested = false;  // is an item of another list or mapping
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in insertion order
  int depth = 1;
  bool nested = false;

  const Value* find(const Value& key) const;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> items;

  Value* find(std::string_view name);
};

// Value of the variable `loop`.
struct Loop {
  std::shared_ptr<const std::vector<Value>> items;
  size_t index0 = 0;
  int depth0 = 0;  // level of a recursive loop
  // Renders the items with the loop's body; null unless the loop is recursive.
  std::function<Value(Render& render, const Value& items)> recurse = nullptr;

  // Returns no value if there is no such attribute.
  std::optional<Value> attribute(std::string_view name) const;
};

// Appends to a list. A list that is an item accepts no lists, so that no list contains itself.
void append(List& list, Value item);

bool is_true(const Value& value);
bool is_equal(const Value& a, const Value& b);
// Returns -1, 0 or 1 for a < b, a == b, a > b. Throws TemplateError for types that Python does not order.
int compare(const Value& a, const Value& b);
bool contains(const Value& container, const Value& item);
int64_t length(const Value& value);
// Returns the items that a for loop iterates over. Throws TemplateError for values that cannot be iterated.
std::vector<Value> get_items(const Value& value);

}  // namespace attend::chat_template
