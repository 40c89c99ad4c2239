// Expressions of a template as a tree; each node evaluates itself.
#pragma once

#include "attend/text/chat_template/values/builtins.h"

namespace attend::chat_template {

class Expr {
 public:
  explicit Expr(int line) : line_(line) {}
  virtual ~Expr() = default;
  Expr(const Expr&) = delete;

  Value operator()(Render& render, const ScopePtr& scope) const {
    const Render::Level level(render, line_);
    return evaluate(render, scope);
  }

 protected:
  virtual Value evaluate(Render& render, const ScopePtr& scope) const = 0;

 private:
  int line_;
};
using ExprPtr = std::unique_ptr<const Expr>;

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;

  Arguments evaluate(Render& render, const ScopePtr& scope) const;
};

ExprPtr make_literal(int line, Value value);
ExprPtr make_name(int line, std::string name);
ExprPtr make_list(int line, std::vector<ExprPtr> items, bool is_tuple);
ExprPtr make_dict(int line, std::vector<std::pair<ExprPtr, ExprPtr>> items);
ExprPtr make_attribute(int line, ExprPtr object, std::string name);
ExprPtr make_subscript(int line, ExprPtr object, ExprPtr key);
// Slice object[start:stop:step]; bounds may be null.
ExprPtr make_slice(int line, ExprPtr object, ExprPtr start, ExprPtr stop, ExprPtr step);
ExprPtr make_call(int line, ExprPtr callee, CallArguments arguments);
ExprPtr make_filter(int line, Filter filter, std::string name, ExprPtr input, CallArguments arguments);
ExprPtr make_test(int line, Test test, std::string name, ExprPtr input, CallArguments arguments);
ExprPtr make_operation(int line, Operator op, ExprPtr a, ExprPtr b);
ExprPtr make_concatenation(int line, std::vector<ExprPtr> parts);
ExprPtr make_negative(int line, ExprPtr operand);
ExprPtr make_not(int line, ExprPtr operand);
enum class LogicalOperator { kAnd, kOr };
ExprPtr make_logical(int line, LogicalOperator logical_operator, ExprPtr a, ExprPtr b);
// Expression "then if condition else otherwise"; `otherwise` may be null.
ExprPtr make_condition(int line, ExprPtr condition, ExprPtr then, ExprPtr otherwise);
enum class Comparison { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
// Chained comparison a < b < c: true if all comparisons are true.
ExprPtr make_comparison(int line, ExprPtr first, std::vector<std::pair<Comparison, ExprPtr>> rest);

}  // namespace attend::chat_template
