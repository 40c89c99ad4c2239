// Render: state of one rendering: output, scopes, and limits, since templates are untrusted.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attend/text/chat_template/values/read_budget.h"
#include "attend/text/chat_template/values/value.h"

namespace attend::chat_template {

class Render {
 public:
  static constexpr int64_t kMaxSteps = 2'000'000;
  static constexpr int64_t kMaxBytes = int64_t{1} << 28;  // copied by all operations together
  static constexpr int kMaxDepth = 500;

  explicit Render(std::time_t time) : now(time) {}

  Text out;
  int line = 0;  // line that is being evaluated, for messages
  const std::time_t now;

  // Nesting level of a running expression or statement.
  class Level {
   public:
    Level(Render& render, int line) : render_(render), outer_line_(std::exchange(render.line, line)) {
      if (++render.depth_ > kMaxDepth)
        fail_template("nested more than ", std::to_string(kMaxDepth), " levels deep");
      if (++render.num_steps_ > kMaxSteps)
        fail_template("runs for more than ", std::to_string(kMaxSteps), " steps");
    }
    // After an error, the innermost line is kept.
    ~Level() {
      --render_.depth_;
      if (std::uncaught_exceptions() == 0) render_.line = outer_line_;
    }
    Level(const Level&) = delete;

   private:
    Render& render_;
    int outer_line_;
  };

  void charge(size_t bytes) {
    num_bytes_ += static_cast<int64_t>(bytes);
    if (num_bytes_ > kMaxBytes)
      fail_template("makes more than ", std::to_string(kMaxBytes), " bytes of text");
  }
  void write(const Text& text) {
    charge(text.size());
    out.append(text);
  }

 private:
  ReadBudget read_budget_;
  int depth_ = 0;
  int64_t num_steps_ = 0;
  int64_t num_bytes_ = 0;
};

// Names and their values. Inner scopes read names of outer ones and set their own.
class Scope {
 public:
  explicit Scope(std::shared_ptr<const Scope> parent = nullptr) : parent_(std::move(parent)) {}

  const Value* find(const std::string& name) const {
    for (const Scope* scope = this; scope; scope = scope->parent_.get()) {
      ReadBudget::charge(kBytesPerVisit);
      if (const auto found = scope->names_.find(name); found != scope->names_.end()) return &found->second;
    }
    return nullptr;
  }
  void set(const std::string& name, Value value) { names_.insert_or_assign(name, std::move(value)); }

 private:
  std::shared_ptr<const Scope> parent_;
  std::unordered_map<std::string, Value> names_;
};
using ScopePtr = std::shared_ptr<Scope>;

// Arguments of a call.
struct Arguments {
  Arguments() = default;
  Arguments(std::vector<Value> by_place) : positional(std::move(by_place)) {}

  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // Removes and returns the next positional argument, or the argument with this name.
  std::optional<Value> take(std::string_view name);
  Value take(std::string_view name, Value missing) { return take(name).value_or(std::move(missing)); }
  // Removes and returns the argument with this name, if it was passed by name.
  std::optional<Value> take_named(std::string_view name);
  // Removes and returns all positional arguments that are left.
  std::vector<Value> take_rest();
  // Throws TemplateError for unused arguments.
  void finish(std::string_view function) const;

 private:
  size_t next_ = 0;
};

// Callable value: a global function, a method of a value, or a macro.
class Callable {
 public:
  virtual ~Callable() = default;
  virtual Value call(Render& render, Arguments arguments) const = 0;
};

}  // namespace attend::chat_template
