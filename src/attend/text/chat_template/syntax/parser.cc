#include "attend/text/chat_template/syntax/parser.h"

#include "attend/text/chat_template/syntax/parse_expression.h"

namespace attend::chat_template {
namespace {

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Block parse() {
    Block block = parse_block({});
    check_calls();
    return block;
  }

 private:
  // Reads up to a tag with one of these names; the name is consumed.
  Block parse_block(std::initializer_list<std::string_view> ends) {
    const Level level(*this);
    Block block;
    while (true) {
      const Token token = peek();
      switch (token.kind) {
        case Token::Kind::kText:
          take();
          block.push_back(make_text(token.line, token.text));
          break;
        case Token::Kind::kOutputBegin:
          take();
          block.push_back(make_output(token.line, parse_expression_or_tuple()));
          expect_end(Token::Kind::kOutputEnd);
          break;
        case Token::Kind::kTagBegin: {
          take();
          for (const std::string_view end : ends)
            if (next_is_name(end)) return block;
          parse_statement(block);
          break;
        }
        default:
          if (ends.size() > 0)
            reject("expected {% " + std::string(*(ends.end() - 1)) + " %}, found the end of the template");
          return block;
      }
    }
  }

  void expect_end(Token::Kind kind) {
    if (peek().kind != kind) reject("expected the end of the tag, found " + found());
    take();
  }
  void end_tag() { expect_end(Token::Kind::kTagEnd); }
  // Reads the closing tag of a block.
  void end_block(std::string_view name) {
    if (!consume_name(name)) reject("expected {% " + std::string(name) + " %}");
    end_tag();
  }

  void parse_statement(Block& block) {
    const int line = peek().line;
    const std::string name = expect_name("the name of a tag");
    if (name == "if") return block.push_back(parse_if(line));
    if (name == "for") return block.push_back(parse_for(line));
    if (name == "set") return block.push_back(parse_set(line));
    if (name == "macro") return block.push_back(parse_macro(line));
    if (name == "call") return block.push_back(parse_call_body(line));
    if (name == "with") return block.push_back(parse_with(line));
    if (name == "filter") return block.push_back(parse_filter_body(line));
    if (name == "generation") {
      // The generation tag marks the assistant's text for training; only its body is rendered.
      end_tag();
      for (StatementPtr& statement : parse_and_end("endgeneration")) block.push_back(std::move(statement));
      return;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) reject("'" + name + "' outside of a loop");
      end_tag();
      return block.push_back(make_flow(line, name == "break" ? Flow::kBreak : Flow::kContinue));
    }
    for (const std::string_view other :
         {"block", "do", "extends", "from", "import", "include", "autoescape", "trans", "debug"})
      if (name == other) reject_unsupported("{% " + name + " %}");
    reject("{% " + name + " %}: no such tag, or it closes nothing");
  }

  Block parse_and_end(std::string_view end) {
    Block block = parse_block({end});
    end_block(end);
    return block;
  }

  StatementPtr parse_if(int line) {
    std::vector<Branch> branches;
    branches.push_back({parse_expression(), {}});
    end_tag();
    while (true) {
      branches.back().body = parse_block({"elif", "else", "endif"});
      if (consume_name("elif")) {
        branches.push_back({parse_expression(), {}});
        end_tag();
      } else if (consume_name("else")) {
        end_tag();
        branches.push_back({nullptr, parse_and_end("endif")});
        return make_if(line, std::move(branches));
      } else {
        end_block("endif");
        return make_if(line, std::move(branches));
      }
    }
  }

  std::vector<std::string> parse_targets() {
    std::vector<std::string> targets;
    const bool brackets = consume_sign("(");
    do {
      targets.push_back(expect_name("a name"));
      assigned_.insert(targets.back());
    } while (consume_sign(","));
    if (brackets) expect_sign(")");
    return targets;
  }

  StatementPtr parse_for(int line) {
    std::vector<std::string> targets = parse_targets();
    if (!consume_name("in")) reject("expected 'in', found " + found());
    // Reads no inline condition, since an "if" here filters the loop.
    ExprPtr items = parse_or();
    ExprPtr condition = consume_name("if") ? parse_expression() : nullptr;
    const bool recursive = consume_name("recursive");
    if (recursive) assigned_.insert("loop");
    end_tag();
    ++loops_;
    Block body = parse_block({"else", "endfor"}), otherwise;
    --loops_;
    if (consume_name("else")) {
      end_tag();
      otherwise = parse_and_end("endfor");
    } else {
      end_block("endfor");
    }
    return make_for(line, std::move(targets), std::move(items), std::move(condition), std::move(body),
                    std::move(otherwise), recursive);
  }

  StatementPtr parse_with(int line) {
    std::vector<std::pair<std::string, ExprPtr>> values;
    while (peek().kind == Token::Kind::kName) {
      if (!values.empty()) reject("expected ',' or the end of the tag, found " + found());
      do {
        std::string name = expect_name("a name");
        assigned_.insert(name);
        expect_sign("=");
        values.emplace_back(std::move(name), parse_expression());
      } while (consume_sign(","));
    }
    end_tag();
    return make_with(line, std::move(values), parse_and_end("endwith"));
  }

  // Reads {% call(parameters) macro(arguments) %}. The macro calls the body by the name "caller".
  StatementPtr parse_call_body(int line) {
    std::vector<Parameter> parameters;
    if (consume_sign("(")) parameters = parse_parameters();
    std::string macro = expect_name("the name of a macro");
    called_.emplace_back(macro, line);
    expect_sign("(");
    CallArguments arguments = parse_arguments();
    arguments.named.emplace_back("caller", make_name(line, kCallerVariable));
    ExprPtr call = make_call(line, make_name(line, std::move(macro)), std::move(arguments));
    end_tag();
    const size_t begin = place();
    const int outer_loops = std::exchange(loops_, 0);
    Block body = parse_and_end("endcall");
    loops_ = outer_loops;
    return make_call_body(line, make_macro_code("caller", std::move(parameters), std::move(body), begin),
                          std::move(call));
  }

  // Reads the parameters of a macro, after the opening parenthesis.
  std::vector<Parameter> parse_parameters() {
    std::vector<Parameter> parameters;
    while (!consume_sign(")")) {
      if (!parameters.empty()) expect_sign(",");
      std::string parameter = expect_name("a parameter");
      assigned_.insert(parameter);
      parameters.push_back({std::move(parameter), consume_sign("=") ? parse_expression() : nullptr});
    }
    return parameters;
  }

  // `begin`: place of the body's first token.
  MacroCode make_macro_code(std::string name, std::vector<Parameter> parameters, Block body, size_t begin) {
    return {.name = std::move(name),
            .parameters = std::move(parameters),
            .body = std::move(body),
            .has_varargs = has_name_since(begin, "varargs"),
            .has_kwargs = has_name_since(begin, "kwargs"),
            .has_caller = has_name_since(begin, "caller")};
  }

  StatementPtr parse_set(int line) {
    if (peek(1).kind == Token::Kind::kSign && peek(1).text == ".") {
      std::string name = expect_name("a namespace");
      take();
      std::string attribute = expect_name("an attribute");
      expect_sign("=");
      ExprPtr value = parse_expression_or_tuple();
      end_tag();
      return make_set_attribute(line, std::move(name), std::move(attribute), std::move(value));
    }
    std::vector<std::string> targets = parse_targets();
    if (consume_sign("=")) {
      ExprPtr value = parse_expression_or_tuple();
      end_tag();
      return make_set(line, std::move(targets), std::move(value));
    }
    if (targets.size() != 1) reject("expected '=', found " + found());
    ExprPtr filter = next_is_sign("|") ? parse_body_filters() : nullptr;
    end_tag();
    return make_set_body(line, std::move(targets[0]), parse_and_end("endset"), std::move(filter));
  }

  // Reads filters that apply to the output of a body.
  ExprPtr parse_body_filters() {
    ExprPtr value = make_name(peek().line, kBodyVariable);
    for (int chain = 0; consume_sign("|"); check_chain(++chain)) value = parse_filter(std::move(value));
    return value;
  }

  StatementPtr parse_filter_body(int line) {
    ExprPtr filter = parse_filter(make_name(line, kBodyVariable));
    for (int chain = 0; consume_sign("|"); check_chain(++chain)) filter = parse_filter(std::move(filter));
    end_tag();
    return make_filter_body(line, parse_and_end("endfilter"), std::move(filter));
  }

  StatementPtr parse_macro(int line) {
    std::string name = expect_name("the name of a macro");
    assigned_.insert(name);
    expect_sign("(");
    std::vector<Parameter> parameters = parse_parameters();
    end_tag();
    assigned_.insert("caller");
    const size_t begin = place();
    const int outer_loops = std::exchange(loops_, 0);
    Block body = parse_and_end("endmacro");
    loops_ = outer_loops;
    return make_macro(line, make_macro_code(std::move(name), std::move(parameters), std::move(body), begin));
  }

  void check_calls() {
    for (const auto& [name, value] : global_functions()) assigned_.insert(name);
    for (const auto& [name, line] : called_)
      if (!assigned_.contains(name)) throw SyntaxError{line, "function " + name + "()", true};
  }

  int loops_ = 0;
};

}  // namespace

Block parse_template(std::string_view source) { return Parser(read_tokens(source)).parse(); }

}  // namespace attend::chat_template
