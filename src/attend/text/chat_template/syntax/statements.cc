#include "attend/text/chat_template/syntax/statements.h"

#include <algorithm>

#include "attend/text/chat_template/values/print.h"

namespace attend::chat_template {

Flow run_block(const Block& block, Render& render, const ScopePtr& scope) {
  for (const StatementPtr& statement : block)
    if (const Flow flow = (*statement)(render, scope); flow != Flow::kNext) return flow;
  return Flow::kNext;
}

namespace {

template <class Body>
class StatementImpl : public Statement {
 public:
  StatementImpl(int line, Body body) : Statement(line), body_(std::move(body)) {}

 protected:
  Flow run(Render& render, const ScopePtr& scope) const override {
    if constexpr (std::is_same_v<decltype(body_(render, scope)), Flow>) {
      return body_(render, scope);
    } else {
      body_(render, scope);
      return Flow::kNext;
    }
  }

 private:
  Body body_;
};

template <class Body>
StatementPtr statement(int line, Body body) {
  return std::make_unique<StatementImpl<Body>>(line, std::move(body));
}

// Renders a block in a new scope and returns its output.
Text render_block(const Block& block, Render& render, const ScopePtr& scope) {
  Text outer = std::exchange(render.out, {});
  run_block(block, render, std::make_shared<Scope>(scope));
  return std::exchange(render.out, std::move(outer));
}

Value filtered_body(const Block& body, const ExprPtr& filter, Render& render, const ScopePtr& scope) {
  Text text = render_block(body, render, scope);
  if (!filter) return text;
  const auto inner = std::make_shared<Scope>(scope);
  inner->set(kBodyVariable, std::move(text));
  return (*filter)(render, inner);
}

void assign(Scope& scope, const std::vector<std::string>& targets, Value value) {
  if (targets.size() == 1) return scope.set(targets[0], std::move(value));
  const std::vector<Value> parts = get_items(value);
  if (parts.size() != targets.size())
    fail_template(std::to_string(targets.size()), " names, and ", std::to_string(parts.size()), " values");
  for (size_t i = 0; i < targets.size(); ++i) scope.set(targets[i], parts[i]);
}

// Macro object. It uses the scope in which it is defined, which owns it.
class Macro : public Callable {
 public:
  Macro(std::shared_ptr<const MacroCode> code, const ScopePtr& scope)
      : code_(std::move(code)), scope_(scope) {}

  Value call(Render& render, Arguments arguments) const override {
    const ScopePtr outer = scope_.lock();
    if (!outer) fail_template("macro ", code_->name, ": called outside of its scope");
    const auto scope = std::make_shared<Scope>(outer);
    for (const Parameter& parameter : code_->parameters) {
      std::optional<Value> given = arguments.take(parameter.name);
      if (!given)
        given = parameter.missing ? (*parameter.missing)(render, scope) : Value::undefined(parameter.name);
      scope->set(parameter.name, std::move(*given));
    }
    if (code_->has_caller)
      scope->set("caller", arguments.take_named("caller").value_or(Value::undefined("caller")));
    if (code_->has_varargs) scope->set("varargs", Value::list(arguments.take_rest(), /*is_tuple=*/true));
    if (code_->has_kwargs) {
      std::vector<std::pair<Value, Value>> items;
      for (auto& [name, value] : std::exchange(arguments.named, {}))
        items.emplace_back(Text(name), std::move(value));
      scope->set("kwargs", Value::dict(std::move(items)));
    }
    arguments.finish(code_->name);
    return render_block(code_->body, render, scope);
  }

 private:
  std::shared_ptr<const MacroCode> code_;
  std::weak_ptr<Scope> scope_;
};

struct ForParts {
  std::vector<std::string> targets;
  ExprPtr items, condition;
  Block body, otherwise;
  bool recursive = false;

  Flow run(Render& render, const ScopePtr& scope) const {
    return run_items(render, scope, (*items)(render, scope), 0);
  }

  Flow run_items(Render& render, const ScopePtr& scope, const Value& list, int depth) const {
    std::vector<Value> values = get_items(list);
    render.charge(values.size() * sizeof(Value));
    if (condition)
      std::erase_if(values, [&](const Value& value) {
        const auto inner = std::make_shared<Scope>(scope);
        assign(*inner, targets, value);
        return !is_true((*condition)(render, inner));
      });
    if (values.empty()) return run_block(otherwise, render, std::make_shared<Scope>(scope));
    const auto shared = std::make_shared<const std::vector<Value>>(std::move(values));
    for (size_t i = 0; i < shared->size(); ++i) {
      const auto inner = std::make_shared<Scope>(scope);
      const auto loop = std::make_shared<Loop>(Loop{shared, i, depth});
      if (recursive)
        loop->recurse = [this, scope, depth](Render& inner_render, const Value& inner_items) -> Value {
          const Render::Level level(inner_render, inner_render.line);
          Text outer = std::exchange(inner_render.out, {});
          run_items(inner_render, scope, inner_items, depth + 1);
          return std::exchange(inner_render.out, std::move(outer));
        };
      inner->set("loop", Value::Data(std::shared_ptr<const Loop>(loop)));
      assign(*inner, targets, (*shared)[i]);
      if (run_block(body, render, inner) == Flow::kBreak) break;
    }
    return Flow::kNext;
  }
};

}  // namespace

StatementPtr make_text(int line, std::string text) {
  return statement(line,
                   [text = Text(std::move(text))](Render& render, const ScopePtr&) { render.write(text); });
}

StatementPtr make_output(int line, ExprPtr expression) {
  return statement(line, [expression = std::move(expression)](Render& render, const ScopePtr& scope) {
    render.write(to_text((*expression)(render, scope)));
  });
}

StatementPtr make_if(int line, std::vector<Branch> branches) {
  return statement(line, [branches = std::move(branches)](Render& render, const ScopePtr& scope) {
    for (const Branch& branch : branches)
      if (!branch.condition || is_true((*branch.condition)(render, scope)))
        return run_block(branch.body, render, scope);
    return Flow::kNext;
  });
}

StatementPtr make_for(int line, std::vector<std::string> targets, ExprPtr items, ExprPtr condition,
                      Block body, Block otherwise, bool recursive) {
  return statement(line, [parts = ForParts{std::move(targets), std::move(items), std::move(condition),
                                           std::move(body), std::move(otherwise), recursive}](
                             Render& render, const ScopePtr& scope) { return parts.run(render, scope); });
}

StatementPtr make_set(int line, std::vector<std::string> targets, ExprPtr value) {
  return statement(
      line, [targets = std::move(targets), value = std::move(value)](Render& render, const ScopePtr& scope) {
        assign(*scope, targets, (*value)(render, scope));
      });
}

StatementPtr make_set_attribute(int line, std::string name, std::string attribute, ExprPtr value) {
  return statement(line, [name = std::move(name), attribute = std::move(attribute), value = std::move(value)](
                             Render& render, const ScopePtr& scope) {
    Value given = (*value)(render, scope);
    const Value* object = scope->find(name);
    if (!object || !object->name_space()) fail_template("'", name, ".", attribute, " = ' needs a namespace");
    if (given.name_space() || given.loop() || given.callable())
      fail_template("a ", given.type_name(), " cannot be an item of a list, a mapping or a namespace");
    Namespace& target = *object->name_space();
    if (Value* known = target.find(attribute))
      *known = std::move(given);
    else
      target.items.emplace_back(attribute, std::move(given));
  });
}

StatementPtr make_set_body(int line, std::string target, Block body, ExprPtr filter) {
  return statement(line, [target = std::move(target), body = std::move(body), filter = std::move(filter)](
                             Render& render, const ScopePtr& scope) {
    scope->set(target, filtered_body(body, filter, render, scope));
  });
}

StatementPtr make_filter_body(int line, Block body, ExprPtr filter) {
  return statement(
      line, [body = std::move(body), filter = std::move(filter)](Render& render, const ScopePtr& scope) {
        render.write(to_text(filtered_body(body, filter, render, scope)));
      });
}

StatementPtr make_with(int line, std::vector<std::pair<std::string, ExprPtr>> values, Block body) {
  return statement(
      line, [values = std::move(values), body = std::move(body)](Render& render, const ScopePtr& scope) {
        const auto inner = std::make_shared<Scope>(scope);
        for (const auto& [name, value] : values) inner->set(name, (*value)(render, scope));
        return run_block(body, render, inner);
      });
}

StatementPtr make_macro(int line, MacroCode code) {
  const auto shared = std::make_shared<const MacroCode>(std::move(code));
  return statement(line, [shared](Render&, const ScopePtr& scope) {
    scope->set(shared->name,
               Value::Data(std::shared_ptr<const Callable>(std::make_shared<Macro>(shared, scope))));
  });
}

StatementPtr make_call_body(int line, MacroCode caller, ExprPtr call) {
  const auto shared = std::make_shared<const MacroCode>(std::move(caller));
  return statement(line, [shared, call = std::move(call)](Render& render, const ScopePtr& scope) {
    const auto inner = std::make_shared<Scope>(scope);
    inner->set(kCallerVariable,
               Value::Data(std::shared_ptr<const Callable>(std::make_shared<Macro>(shared, scope))));
    render.write(to_text((*call)(render, inner)));
  });
}

StatementPtr make_flow(int line, Flow flow) {
  return statement(line, [flow](Render&, const ScopePtr&) { return flow; });
}

}  // namespace attend::chat_template
