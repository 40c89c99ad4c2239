// Statements of a template as a tree; each node executes itself.
#pragma once

#include "attend/text/chat_template/syntax/expressions.h"

namespace attend::chat_template {

enum class Flow { kNext, kBreak, kContinue };

class Statement {
 public:
  explicit Statement(int line) : line_(line) {}
  virtual ~Statement() = default;
  Statement(const Statement&) = delete;

  Flow operator()(Render& render, const ScopePtr& scope) const {
    const Render::Level level(render, line_);
    return run(render, scope);
  }

 protected:
  virtual Flow run(Render& render, const ScopePtr& scope) const = 0;

 private:
  int line_;
};
using Block = std::vector<std::unique_ptr<const Statement>>;
using StatementPtr = std::unique_ptr<const Statement>;

Flow run_block(const Block& block, Render& render, const ScopePtr& scope);

struct Parameter {
  std::string name;
  ExprPtr missing;  // default value; null: undefined if not passed
};
struct Branch {
  ExprPtr condition;  // null: else branch
  Block body;
};

struct MacroCode {
  std::string name;
  std::vector<Parameter> parameters;
  Block body;
  // The body uses the names of further arguments, and of the body of a call block.
  bool has_varargs = false, has_kwargs = false, has_caller = false;
};

StatementPtr make_text(int line, std::string text);
StatementPtr make_output(int line, ExprPtr expression);
StatementPtr make_if(int line, std::vector<Branch> branches);
// For loop. Several `targets` unpack each item. `condition` may be null.
StatementPtr make_for(int line, std::vector<std::string> targets, ExprPtr items, ExprPtr condition,
                      Block body, Block otherwise, bool recursive);
// Runs the body in a scope with these values.
StatementPtr make_with(int line, std::vector<std::pair<std::string, ExprPtr>> values, Block body);
StatementPtr make_set(int line, std::vector<std::string> targets, ExprPtr value);
// Assignment namespace.attribute = value.
StatementPtr make_set_attribute(int line, std::string name, std::string attribute, ExprPtr value);
// Assigns the output of the body, filtered by `filter` if it is not null. `filter` reads the output under the
// name `input`.
StatementPtr make_set_body(int line, std::string target, Block body, ExprPtr filter);
StatementPtr make_filter_body(int line, Block body, ExprPtr filter);
StatementPtr make_macro(int line, MacroCode code);
// Writes the result of `call`, which reads the macro `caller` under the name kCallerVariable.
StatementPtr make_call_body(int line, MacroCode caller, ExprPtr call);
StatementPtr make_flow(int line, Flow flow);

// Name under which filters of a body read its output. Templates cannot spell it.
inline const std::string kBodyVariable = "(body)";
// Name of the body of a call block in the arguments of the call.
inline const std::string kCallerVariable = "(caller)";

}  // namespace attend::chat_template
