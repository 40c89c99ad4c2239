// Statements of a template. Each runs itself.
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
  ExprPtr missing;  // null: undefined where it is not given
};
struct Branch {
  ExprPtr condition;  // null: else
  Block body;
};

StatementPtr make_text(int line, std::string text);
StatementPtr make_output(int line, ExprPtr expression);
StatementPtr make_if(int line, std::vector<Branch> branches);
// `targets`: several take an item apart. `condition` may be null.
StatementPtr make_for(int line, std::vector<std::string> targets, ExprPtr items, ExprPtr condition,
                      Block body, Block otherwise);
StatementPtr make_set(int line, std::vector<std::string> targets, ExprPtr value);
// namespace.attribute = value
StatementPtr make_set_attribute(int line, std::string name, std::string attribute, ExprPtr value);
// What the body writes, through a filter if there is one: `filter` has the name `input` to read it by.
StatementPtr make_set_body(int line, std::string target, Block body, ExprPtr filter);
StatementPtr make_filter_body(int line, Block body, ExprPtr filter);
StatementPtr make_macro(int line, std::string name, std::vector<Parameter> parameters, Block body);
StatementPtr make_flow(int line, Flow flow);

// The name by which the filters of a body read what it wrote: none that a template can spell.
inline const std::string kBodyVariable = "(body)";

}  // namespace attend::chat_template
