// The values of a template: those of Python that templates of chats use.
#pragma once

#include <cstdint>
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

// What a template does wrong, or was told to refuse by raise_exception. Whoever renders adds the place.
struct TemplateError {
  std::string message;
  bool raised = false;  // by the template itself
};

template <class... Parts>
[[noreturn]] void complain(const Parts&... parts) {
  std::string message;
  (message.append(parts), ...);
  throw TemplateError{std::move(message), false};
}

struct List;
struct Dict;
struct Namespace;
struct Loop;
class Callable;

struct Undefined {
  std::string name;
};
struct None {};

// Lists, mappings and namespaces are shared by reference, as in Python.
class Value {
 public:
  using Data = std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
                            std::shared_ptr<List>, std::shared_ptr<Dict>, std::shared_ptr<Namespace>,
                            std::shared_ptr<const Loop>, std::shared_ptr<const Callable>>;

  Value() : data_(Undefined{}) {}
  Value(Data data) : data_(std::move(data)) {}
  Value(Text text) : data_(std::make_shared<const Text>(std::move(text))) {}
  static Value undefined(std::string_view name) { return Data(Undefined{std::string(name)}); }
  static Value none() { return Data(None{}); }
  static Value boolean(bool value) { return Data(value); }
  static Value integer(int64_t value) { return Data(value); }
  static Value real(double value) { return Data(value); }
  static Value text(std::string_view bytes) { return Text(bytes); }
  // What stands in a list or a mapping may be nested 200 levels deep; namespaces, loops and macros may not.
  static Value list(std::vector<Value> items, bool is_tuple = false);
  static Value dict(std::vector<std::pair<Value, Value>> items);

  template <class T>
  const T* get() const {
    return std::get_if<T>(&data_);
  }
  const Text* text() const;  // null: it is none; likewise below
  List* list() const;
  Dict* dict() const;
  Namespace* name_space() const;
  const Loop* loop() const;
  const Callable* callable() const;
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_none() const { return get<None>() != nullptr; }
  // A bool counts as a number, as in Python.
  std::optional<int64_t> integer() const;
  std::optional<double> number() const;

  // "str", "list", ... as Python calls them, for messages.
  std::string_view type_name() const;

 private:
  friend struct Nesting;
  Data data_;
};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;
  bool nested = false;  // stands in another list or mapping
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in the order of insertion
  int depth = 1;
  bool nested = false;

  const Value* find(const Value& key) const;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> items;

  Value* find(std::string_view name);
};

// The variable `loop`.
struct Loop {
  std::shared_ptr<const std::vector<Value>> items;
  size_t index0 = 0;

  // Nothing if it has no such attribute.
  std::optional<Value> attribute(std::string_view name) const;
};

// Appends to a list. A list that stands in another one takes no lists: so none contains itself.
void append(List& list, Value item);

bool is_true(const Value& value);
bool is_equal(const Value& a, const Value& b);
// -1, 0, 1 as a < b, a == b, a > b. Complains about what Python does not order.
int compare(const Value& a, const Value& b);
bool contains(const Value& container, const Value& item);
int64_t length(const Value& value);
// What a for loop would see. Complains about what can not be iterated.
std::vector<Value> get_items(const Value& value);

}  // namespace attend::chat_template
