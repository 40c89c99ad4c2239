#include "attend/text/chat_template/syntax/expressions.h"

#include <algorithm>

#include "attend/text/chat_template/values/print.h"

namespace attend::chat_template {
namespace {

// Expression that is evaluated by a callable.
template <class Body>
class ExprImpl : public Expr {
 public:
  ExprImpl(int line, Body body) : Expr(line), body_(std::move(body)) {}

 protected:
  Value evaluate(Render& render, const ScopePtr& scope) const override { return body_(render, scope); }

 private:
  Body body_;
};

template <class Body>
ExprPtr expr(int line, Body body) {
  return std::make_unique<ExprImpl<Body>>(line, std::move(body));
}

bool holds(Comparison comparison, const Value& a, const Value& b) {
  switch (comparison) {
    case Comparison::kEqual:
      return is_equal(a, b);
    case Comparison::kNotEqual:
      return !is_equal(a, b);
    case Comparison::kLess:
      return compare(a, b) < 0;
    case Comparison::kLessEqual:
      return compare(a, b) <= 0;
    case Comparison::kGreater:
      return compare(a, b) > 0;
    case Comparison::kGreaterEqual:
      return compare(a, b) >= 0;
    case Comparison::kIn:
      return contains(b, a);
    case Comparison::kNotIn:
      break;
  }
  return !contains(b, a);
}

}  // namespace

Arguments CallArguments::evaluate(Render& render, const ScopePtr& scope) const {
  Arguments arguments;
  for (const ExprPtr& argument : positional) arguments.positional.push_back((*argument)(render, scope));
  for (const auto& [name, argument] : named) arguments.named.emplace_back(name, (*argument)(render, scope));
  return arguments;
}

ExprPtr make_literal(int line, Value value) {
  return expr(line, [value = std::move(value)](Render&, const ScopePtr&) { return value; });
}

ExprPtr make_name(int line, std::string name) {
  return expr(line, [name = std::move(name)](Render&, const ScopePtr& scope) {
    const Value* found = scope->find(name);
    return found ? *found : Value::undefined(name);
  });
}

ExprPtr make_list(int line, std::vector<ExprPtr> items, bool is_tuple) {
  return expr(line, [items = std::move(items), is_tuple](Render& render, const ScopePtr& scope) {
    std::vector<Value> values;
    for (const ExprPtr& item : items) values.push_back((*item)(render, scope));
    return Value::list(std::move(values), is_tuple);
  });
}

ExprPtr make_dict(int line, std::vector<std::pair<ExprPtr, ExprPtr>> items) {
  return expr(line, [items = std::move(items)](Render& render, const ScopePtr& scope) {
    std::vector<std::pair<Value, Value>> values;
    for (const auto& [key_expr, value_expr] : items) {
      Value key = (*key_expr)(render, scope), value = (*value_expr)(render, scope);
      const auto same = [&](const auto& item) { return is_equal(item.first, key); };
      if (const auto known = std::find_if(values.begin(), values.end(), same); known != values.end())
        known->second = std::move(value);
      else
        values.emplace_back(std::move(key), std::move(value));
    }
    return Value::dict(std::move(values));
  });
}

ExprPtr make_attribute(int line, ExprPtr object, std::string name) {
  return expr(line,
              [object = std::move(object), name = std::move(name)](Render& render, const ScopePtr& scope) {
                return get_attribute((*object)(render, scope), name);
              });
}

ExprPtr make_subscript(int line, ExprPtr object, ExprPtr key) {
  return expr(line,
              [object = std::move(object), key = std::move(key)](Render& render, const ScopePtr& scope) {
                const Value value = (*object)(render, scope);
                if (value.text()) render.charge(value.text()->size());
                return get_subscript(value, (*key)(render, scope));
              });
}

ExprPtr make_slice(int line, ExprPtr object, ExprPtr start, ExprPtr stop, ExprPtr step) {
  return expr(line, [object = std::move(object), start = std::move(start), stop = std::move(stop),
                     step = std::move(step)](Render& render, const ScopePtr& scope) {
    const auto bound = [&](const ExprPtr& given) { return given ? (*given)(render, scope) : Value::none(); };
    const Value value = (*object)(render, scope);
    render.charge(value.text()   ? value.text()->size()
                  : value.list() ? value.list()->items.size() * sizeof(Value)
                                 : 0);
    const Value from = bound(start), to = bound(stop);
    return get_slice(value, from, to, bound(step));
  });
}

ExprPtr make_call(int line, ExprPtr callee, CallArguments arguments) {
  return expr(line, [callee = std::move(callee), arguments = std::move(arguments)](Render& render,
                                                                                   const ScopePtr& scope) {
    const Value function = (*callee)(render, scope);
    if (const Undefined* undefined = function.get<Undefined>())
      fail_template("'", undefined->name, "' is undefined");
    if (const Loop* loop = function.loop(); loop && loop->recurse) {
      Arguments given = arguments.evaluate(render, scope);
      const Value items = given.take("iterable", Value());
      given.finish("loop");
      return loop->recurse(render, items);
    }
    if (!function.callable()) fail_template("a ", function.type_name(), " cannot be called");
    return function.callable()->call(render, arguments.evaluate(render, scope));
  });
}

ExprPtr make_filter(int line, Filter filter, std::string name, ExprPtr input, CallArguments arguments) {
  return expr(line, [=, name = std::move(name), input = std::move(input), arguments = std::move(arguments)](
                        Render& render, const ScopePtr& scope) {
    const Value value = (*input)(render, scope);
    Arguments given = arguments.evaluate(render, scope);
    Value result = filter(value, given, render);
    given.finish(name);
    return result;
  });
}

ExprPtr make_test(int line, Test test, std::string name, ExprPtr input, CallArguments arguments) {
  return expr(line, [=, name = std::move(name), input = std::move(input), arguments = std::move(arguments)](
                        Render& render, const ScopePtr& scope) {
    const Value value = (*input)(render, scope);
    Arguments given = arguments.evaluate(render, scope);
    const bool result = test(value, given);
    given.finish(name);
    return Value::boolean(result);
  });
}

ExprPtr make_operation(int line, Operator op, ExprPtr a, ExprPtr b) {
  return expr(line, [op, a = std::move(a), b = std::move(b)](Render& render, const ScopePtr& scope) {
    const Value left = (*a)(render, scope);
    return apply(op, left, (*b)(render, scope), render);
  });
}

ExprPtr make_concatenation(int line, std::vector<ExprPtr> parts) {
  return expr(line, [parts = std::move(parts)](Render& render, const ScopePtr& scope) {
    Text whole;
    for (const ExprPtr& part : parts) {
      const Text text = to_text((*part)(render, scope));
      render.charge(text.size());
      whole.append(text);
    }
    return Value(std::move(whole));
  });
}

ExprPtr make_negative(int line, ExprPtr operand) {
  return expr(line, [operand = std::move(operand)](Render& render, const ScopePtr& scope) {
    return negate((*operand)(render, scope));
  });
}

ExprPtr make_not(int line, ExprPtr operand) {
  return expr(line, [operand = std::move(operand)](Render& render, const ScopePtr& scope) {
    return Value::boolean(!is_true((*operand)(render, scope)));
  });
}

ExprPtr make_logical(int line, LogicalOperator logical_operator, ExprPtr a, ExprPtr b) {
  return expr(
      line, [logical_operator, a = std::move(a), b = std::move(b)](Render& render, const ScopePtr& scope) {
        Value left = (*a)(render, scope);
        return is_true(left) == (logical_operator == LogicalOperator::kOr) ? left : (*b)(render, scope);
      });
}

ExprPtr make_condition(int line, ExprPtr condition, ExprPtr then, ExprPtr otherwise) {
  return expr(line, [condition = std::move(condition), then = std::move(then),
                     otherwise = std::move(otherwise)](Render& render, const ScopePtr& scope) {
    if (is_true((*condition)(render, scope))) return (*then)(render, scope);
    return otherwise ? (*otherwise)(render, scope) : Value::undefined("an inline if without else");
  });
}

ExprPtr make_comparison(int line, ExprPtr first, std::vector<std::pair<Comparison, ExprPtr>> rest) {
  return expr(line,
              [first = std::move(first), rest = std::move(rest)](Render& render, const ScopePtr& scope) {
                Value left = (*first)(render, scope);
                for (const auto& [comparison, operand] : rest) {
                  Value right = (*operand)(render, scope);
                  if (!holds(comparison, left, right)) return Value::boolean(false);
                  left = std::move(right);
                }
                return Value::boolean(true);
              });
}

}  // namespace attend::chat_template
