// Flags that say no: CLI11 alone reads "010" as octal, "-1" as a large unsigned number and "" as nothing.
#pragma once

#include <CLI/CLI.hpp>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace attend::cli {

// What a number may be.
template <class Number>
struct Range {
  Number lowest = std::numeric_limits<Number>::lowest();
  Number highest = std::numeric_limits<Number>::max();
  bool above_lowest = false;  // the lowest itself is not taken
  const char* or_else = "";   // what else the flag takes, for its refusal: ", or -1 for ..."
};

// A number in decimal digits, all of `text`. Throws Error(kInvalidArgument) naming the flag, the text and
// what would be accepted. For int, int64_t, uint64_t, float and double (finite).
template <class Number>
Number parse_number(std::string_view flag, std::string_view text, Range<Number> range = {});

// The first name in "--page-size,--block-size".
std::string_view first_name(std::string_view flags);

// A flag that takes a number; its default is shown in the help unless it is 0, which stands for "chosen".
template <class Number>
CLI::Option* add_number(CLI::App& app, const std::string& flags, Number& value, const std::string& help,
                        Range<Number> range = {}) {
  const std::string name(first_name(flags));
  CLI::Option* option = app.add_option_function<std::string>(
      flags,
      [&value, name, range](const std::string& text) { value = parse_number<Number>(name, text, range); },
      help);
  if (value != Number{}) option->default_str(CLI::detail::to_string(value));
  return option->type_name("NUMBER");
}

// A flag that takes several numbers, with commas between them, instead of those that are there. `range`: what
// each of them may be, for the refusal of what is no number; whoever uses them checks it.
CLI::Option* add_numbers(CLI::App& app, const std::string& flags, std::vector<int>& values,
                         const std::string& range, const std::string& help);

// Whether the command has this flag and it was given.
bool given(const CLI::App& app, const std::string& flag);

// A flag that takes a text, which must not be empty.
CLI::Option* add_text(CLI::App& app, const std::string& flags, std::string& value, const std::string& help);

// A flag that takes one text each time it is given, as it is: CLI11 would split a vector's "[a,b]".
CLI::Option* add_repeated(CLI::App& app, const std::string& flags, std::vector<std::string>& values,
                          const std::string& help);

// Throws Error(kInvalidArgument) naming the flag and the reason when `path` can not be written, so that a
// command fails before its work rather than after it. An empty path passes.
void check_writable(std::string_view flag, const std::string& path);

}  // namespace attend::cli
