#include "attend/text/chat_template/syntax/parse_expression.h"

namespace attend::chat_template {

std::string ExpressionParser::found() const {
  switch (peek().kind) {
    case Token::Kind::kTagEnd:
    case Token::Kind::kOutputEnd:
      return "the end of the tag";
    case Token::Kind::kEnd:
      return "the end of the template";
    case Token::Kind::kString:
      return "a string";
    default:
      return "'" + peek().text + "'";
  }
}

void ExpressionParser::expect_sign(std::string_view sign) {
  if (!consume_sign(sign)) reject("expected '" + std::string(sign) + "', found " + found());
}

std::string ExpressionParser::expect_name(std::string_view what) {
  if (peek().kind != Token::Kind::kName) reject("expected " + std::string(what) + ", found " + found());
  return take().text;
}

ExprPtr ExpressionParser::parse_expression() {
  const Level level(*this);
  const int line = peek().line;
  ExprPtr value = parse_or();
  for (int chain = 0; consume_name("if"); ++chain) {
    check_chain(chain);
    ExprPtr condition = parse_or();
    ExprPtr otherwise = consume_name("else") ? parse_expression() : nullptr;
    value = make_condition(line, std::move(condition), std::move(value), std::move(otherwise));
  }
  return value;
}

ExprPtr ExpressionParser::parse_expression_or_tuple() {
  const int line = peek().line;
  ExprPtr first = parse_expression();
  if (!next_is_sign(",")) return first;
  std::vector<ExprPtr> items;
  items.push_back(std::move(first));
  while (consume_sign(",")) {
    if (peek().kind == Token::Kind::kTagEnd || peek().kind == Token::Kind::kOutputEnd || next_is_sign(")"))
      break;
    items.push_back(parse_expression());
  }
  return make_list(line, std::move(items), /*is_tuple=*/true);
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr value = parse_and();
  for (int chain = 0; next_is_name("or"); check_chain(++chain)) {
    const int line = take().line;
    value = make_logical(line, LogicalOperator::kOr, std::move(value), parse_and());
  }
  return value;
}

ExprPtr ExpressionParser::parse_and() {
  ExprPtr value = parse_not();
  for (int chain = 0; next_is_name("and"); check_chain(++chain)) {
    const int line = take().line;
    value = make_logical(line, LogicalOperator::kAnd, std::move(value), parse_not());
  }
  return value;
}

ExprPtr ExpressionParser::parse_not() {
  const Level level(*this);
  const int line = peek().line;
  if (consume_name("not")) return make_not(line, parse_not());
  return parse_comparison();
}

std::optional<Comparison> ExpressionParser::consume_comparison() {
  if (consume_sign("==")) return Comparison::kEqual;
  if (consume_sign("!=")) return Comparison::kNotEqual;
  if (consume_sign("<=")) return Comparison::kLessEqual;
  if (consume_sign(">=")) return Comparison::kGreaterEqual;
  if (consume_sign("<")) return Comparison::kLess;
  if (consume_sign(">")) return Comparison::kGreater;
  if (consume_name("in")) return Comparison::kIn;
  if (next_is_name("not") && peek(1).kind == Token::Kind::kName && peek(1).text == "in") {
    take();
    take();
    return Comparison::kNotIn;
  }
  return std::nullopt;
}

ExprPtr ExpressionParser::parse_comparison() {
  const int line = peek().line;
  ExprPtr first = parse_sum();
  std::vector<std::pair<Comparison, ExprPtr>> rest;
  while (const auto comparison = consume_comparison()) rest.emplace_back(*comparison, parse_sum());
  return rest.empty() ? std::move(first) : make_comparison(line, std::move(first), std::move(rest));
}

std::optional<Operator> ExpressionParser::consume_operator(
    std::initializer_list<std::pair<std::string_view, Operator>> choices) {
  for (const auto& [sign, op] : choices)
    if (consume_sign(sign)) return op;
  return std::nullopt;
}

ExprPtr ExpressionParser::parse_sum() {
  const int line = peek().line;
  ExprPtr value = parse_concatenation();
  for (int chain = 0; const auto op = consume_operator({{"+", Operator::kAdd}, {"-", Operator::kSubtract}});
       check_chain(++chain))
    value = make_operation(line, *op, std::move(value), parse_concatenation());
  return value;
}

ExprPtr ExpressionParser::parse_concatenation() {
  const int line = peek().line;
  std::vector<ExprPtr> parts;
  parts.push_back(parse_product());
  while (consume_sign("~")) parts.push_back(parse_product());
  return parts.size() == 1 ? std::move(parts[0]) : make_concatenation(line, std::move(parts));
}

ExprPtr ExpressionParser::parse_product() {
  const int line = peek().line;
  ExprPtr value = parse_power();
  for (int chain = 0; const auto op = consume_operator({{"*", Operator::kMultiply},
                                                        {"//", Operator::kFloorDivide},
                                                        {"/", Operator::kDivide},
                                                        {"%", Operator::kModulo}});
       check_chain(++chain))
    value = make_operation(line, *op, std::move(value), parse_power());
  return value;
}

ExprPtr ExpressionParser::parse_power() {
  const int line = peek().line;
  ExprPtr value = parse_unary(true);
  for (int chain = 0; consume_sign("**"); check_chain(++chain))
    value = make_operation(line, Operator::kPower, std::move(value), parse_unary(true));
  return value;
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  const Level level(*this);
  const int line = peek().line;
  ExprPtr value;
  if (consume_sign("-")) {
    value = make_negative(line, parse_unary(false));
  } else if (consume_sign("+")) {
    value = parse_unary(false);
  } else {
    const std::string name = peek().kind == Token::Kind::kName ? peek().text : "";
    value = parse_postfix(parse_primary(), name.empty() ? nullptr : &name);
  }
  return with_filters ? parse_filters_and_tests(std::move(value)) : std::move(value);
}

ExprPtr ExpressionParser::parse_primary() {
  const Token token = peek();
  switch (token.kind) {
    case Token::Kind::kName:
      take();
      if (token.text == "true" || token.text == "True") return make_literal(token.line, Value::boolean(true));
      if (token.text == "false" || token.text == "False")
        return make_literal(token.line, Value::boolean(false));
      if (token.text == "none" || token.text == "None") return make_literal(token.line, Value::none());
      for (const std::string_view word : {"if", "else", "for", "in", "is", "and", "or", "not"})
        if (token.text == word) reject("expected a value, found '" + token.text + "'");
      return make_name(token.line, token.text);
    case Token::Kind::kString: {
      std::string text;
      while (peek().kind == Token::Kind::kString) text += take().text;
      return make_literal(token.line, Text(std::move(text)));
    }
    case Token::Kind::kInteger:
      take();
      return make_literal(token.line, Value::integer(token.integer));
    case Token::Kind::kFloat:
      take();
      return make_literal(token.line, Value::real(token.real));
    default:
      return parse_brackets();
  }
}

ExprPtr ExpressionParser::parse_brackets() {
  const int line = peek().line;
  if (consume_sign("(")) {
    if (consume_sign(")")) return make_list(line, {}, /*is_tuple=*/true);
    ExprPtr value = parse_expression_or_tuple();
    expect_sign(")");
    return value;
  }
  if (next_is_sign("[")) return parse_list();
  if (next_is_sign("{")) return parse_dict();
  reject("expected a value, found " + found());
}

ExprPtr ExpressionParser::parse_list() {
  const int line = take().line;
  std::vector<ExprPtr> items;
  while (!consume_sign("]")) {
    if (!items.empty()) expect_sign(",");
    if (consume_sign("]")) break;
    items.push_back(parse_expression());
  }
  return make_list(line, std::move(items), /*is_tuple=*/false);
}

ExprPtr ExpressionParser::parse_dict() {
  const int line = take().line;
  std::vector<std::pair<ExprPtr, ExprPtr>> items;
  while (!consume_sign("}")) {
    if (!items.empty()) expect_sign(",");
    if (consume_sign("}")) break;
    ExprPtr key = parse_expression();
    expect_sign(":");
    items.emplace_back(std::move(key), parse_expression());
  }
  return make_dict(line, std::move(items));
}

// `name`: name of the object if it is a plain name; calls are checked against the known names.
ExprPtr ExpressionParser::parse_postfix(ExprPtr object, const std::string* name) {
  std::string method;
  for (int chain = 0;; check_chain(++chain)) {
    const int line = peek().line;
    if (consume_sign(".")) {
      if (peek().kind == Token::Kind::kInteger) {
        object = make_subscript(line, std::move(object), make_literal(line, Value::integer(take().integer)));
        method = "0";
      } else {
        method = expect_name("an attribute");
        object = make_attribute(line, std::move(object), method);
      }
    } else if (next_is_sign("[")) {
      object = parse_subscript(std::move(object));
      method = "[]";
    } else if (next_is_sign("(")) {
      if (name && method.empty()) called_.emplace_back(*name, line);
      if (!method.empty() && !is_method(method)) reject_unsupported("method " + method + "()");
      take();
      object = make_call(line, std::move(object), parse_arguments());
      method = "()";
    } else {
      return object;
    }
  }
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr object) {
  const int line = take().line;
  ExprPtr start, stop, step;
  const auto at_bound = [&] { return !next_is_sign(":") && !next_is_sign("]"); };
  if (at_bound()) start = parse_expression();
  if (start && consume_sign("]")) return make_subscript(line, std::move(object), std::move(start));
  expect_sign(":");
  if (at_bound()) stop = parse_expression();
  if (consume_sign(":") && at_bound()) step = parse_expression();
  expect_sign("]");
  return make_slice(line, std::move(object), std::move(start), std::move(stop), std::move(step));
}

// Reads arguments; the opening bracket has been read.
CallArguments ExpressionParser::parse_arguments() {
  CallArguments arguments;
  for (bool first = true; !consume_sign(")"); first = false) {
    if (!first) expect_sign(",");
    if (consume_sign(")")) break;
    if (next_is_sign("*") || next_is_sign("**"))
      reject_unsupported("'" + peek().text + "' before an argument");
    if (peek().kind == Token::Kind::kName && peek(1).kind == Token::Kind::kSign && peek(1).text == "=") {
      std::string name = take().text;
      take();
      for (const auto& [known, value] : arguments.named)
        if (known == name) reject("argument " + name + " is given twice");
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (!arguments.named.empty()) reject("a positional argument after a named one");
      arguments.positional.push_back(parse_expression());
    }
  }
  return arguments;
}

ExprPtr ExpressionParser::parse_filters_and_tests(ExprPtr input) {
  for (int chain = 0;; check_chain(++chain)) {
    if (consume_sign("|")) {
      input = parse_filter(std::move(input));
    } else if (consume_name("is")) {
      input = parse_test(std::move(input));
    } else if (next_is_sign("(")) {
      reject_unsupported("a call of the result of a filter or a test");
    } else {
      return input;
    }
  }
}

ExprPtr ExpressionParser::parse_filter(ExprPtr input) {
  const int line = peek().line;
  std::string name = expect_name("the name of a filter");
  const Filter filter = find_filter(name);
  if (!filter) reject_unsupported("filter " + name);
  // In map("name"), select("name") and selectattr("attribute", "name"), an argument names another filter or
  // test.
  const size_t place = name == "selectattr" || name == "rejectattr" ? 3 : 1;
  const bool names_one = name == "map" || name == "select" || name == "reject" || place == 3;
  if (names_one && next_is_sign("(") && peek(place).kind == Token::Kind::kString) {
    const std::string& inner = peek(place).text;
    if (name == "map" ? find_filter(inner) == nullptr : find_test(inner) == nullptr)
      reject_unsupported((name == "map" ? "filter " : "test ") + inner);
  }
  CallArguments arguments;
  if (consume_sign("(")) arguments = parse_arguments();
  return make_filter(line, filter, std::move(name), std::move(input), std::move(arguments));
}

ExprPtr ExpressionParser::parse_test(ExprPtr input) {
  const Level level(*this);
  const int line = peek().line;
  const bool negated = consume_name("not");
  std::string name = expect_name("the name of a test");
  const Test test = find_test(name);
  if (!test) reject_unsupported("test " + name);
  CallArguments arguments;
  const Token::Kind next = peek().kind;
  if (consume_sign("(")) {
    arguments = parse_arguments();
  } else if (next == Token::Kind::kString || next == Token::Kind::kInteger || next == Token::Kind::kFloat ||
             next_is_sign("[") || next_is_sign("{") ||
             (next == Token::Kind::kName && !next_is_name("else") && !next_is_name("or") &&
              !next_is_name("and") && !next_is_name("if") && !next_is_name("is") && !next_is_name("in") &&
              !next_is_name("not"))) {
    arguments.positional.push_back(parse_postfix(parse_primary(), nullptr));
  }
  ExprPtr tested = make_test(line, test, std::move(name), std::move(input), std::move(arguments));
  return negated ? make_not(line, std::move(tested)) : std::move(tested);
}

}  // namespace attend::chat_template
