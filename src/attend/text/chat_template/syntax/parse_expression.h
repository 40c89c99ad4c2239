// ExpressionParser: the part of the parser that reads expressions.
#pragma once

#include <set>

#include "attend/text/chat_template/syntax/expressions.h"
#include "attend/text/chat_template/syntax/lexer.h"

namespace attend::chat_template {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  // Maximum nesting of brackets and blocks.
  static constexpr int kMaxLevels = 100;
  // Maximum number of chained operands: a + b + c ..., a.b.c ...
  static constexpr int kMaxChain = 200;

  // Reads "a if b else c".
  // The variant for tuples also reads "a, b".
  ExprPtr parse_expression();
  ExprPtr parse_expression_or_tuple();
  ExprPtr parse_or();
  // Reads filters that follow an expression, each starting with "|" or its name.
  ExprPtr parse_filter(ExprPtr input);

  [[noreturn]] void reject(const std::string& message) const { throw SyntaxError{peek().line, message}; }
  [[noreturn]] void reject_unsupported(const std::string& message) const {
    throw SyntaxError{peek().line, message, true};
  }
  // Describes the next token for messages: "'else'", "the end of the tag", ...
  std::string found() const;
  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool next_is(std::string_view text, Token::Kind kind) const {
    return peek().kind == kind && peek().text == text;
  }
  bool next_is_name(std::string_view name) const { return next_is(name, Token::Kind::kName); }
  bool next_is_sign(std::string_view sign) const { return next_is(sign, Token::Kind::kSign); }
  bool consume_name(std::string_view name) { return next_is_name(name) && (take(), true); }
  bool consume_sign(std::string_view sign) { return next_is_sign(sign) && (take(), true); }
  void expect_sign(std::string_view sign);
  std::string expect_name(std::string_view what);

  // Counts nesting during its lifetime.
  class Level {
   public:
    explicit Level(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.level_ > kMaxLevels)
        parser_.reject_unsupported("nested more than " + std::to_string(kMaxLevels) + " levels deep");
    }
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };
  void check_chain(int length) const {
    if (length > kMaxChain)
      reject_unsupported("more than " + std::to_string(kMaxChain) + " operands in a row");
  }

  // Reads the arguments of a call, after the opening parenthesis.
  CallArguments parse_arguments();
  // Place of the next token, and whether a name occurs between a place and the next token.
  size_t place() const { return at_; }
  bool has_name_since(size_t place, std::string_view name) const {
    for (size_t i = place; i < at_; ++i)
      if (tokens_[i].kind == Token::Kind::kName && tokens_[i].text == name) return true;
    return false;
  }

  // Called names with their lines, and names that are defined as callable.
  std::vector<std::pair<std::string, int>> called_;
  std::set<std::string> assigned_;

 private:
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_comparison();
  ExprPtr parse_sum();
  ExprPtr parse_concatenation();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters);
  ExprPtr parse_primary();
  ExprPtr parse_brackets();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr object, const std::string* name);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_filters_and_tests(ExprPtr input);
  ExprPtr parse_test(ExprPtr input);
  std::optional<Operator> consume_operator(
      std::initializer_list<std::pair<std::string_view, Operator>> choices);
  std::optional<Comparison> consume_comparison();

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int level_ = 0;
};

}  // namespace attend::chat_template
