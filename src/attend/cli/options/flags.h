// Flags with strict values: CLI11 itself parses "010" as octal, "-1" as a large unsigned number and "" as 0.
#pragma once

#include <CLI/CLI.hpp>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace attend::cli {

// Range of a number.
template <class Number>
struct Range {
  Number lowest = std::numeric_limits<Number>::lowest();
  Number highest = std::numeric_limits<Number>::max();
  bool above_lowest = false;  // excludes the lowest value
  const char* or_else = "";   // further accepted values for the error message: ", or -1 for ..."
};

// Parses all of `text` as a number in decimal digits. Throws Error(kInvalidArgument) that names the flag, the
// text and the accepted range. Supports int, int64_t, uint64_t, float and double (finite).
template <class Number>
Number parse_number(std::string_view flag, std::string_view text, Range<Number> range = {});

// Returns the first name of "--page-size,--block-size".
std::string_view first_name(std::string_view flags);

// Adds a flag with a number. The help shows its default unless that is 0, which means "chosen automatically".
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

// Adds a flag with numbers separated by commas, which replace `values`. `range`: description of the accepted
// numbers for error messages; the caller validates them.
CLI::Option* add_numbers(CLI::App& app, const std::string& flags, std::vector<int>& values,
                         const std::string& range, const std::string& help);

// Returns true if the command has this flag and it was given.
bool given(const CLI::App& app, const std::string& flag);

// Adds a flag with a non-empty text.
CLI::Option* add_text(CLI::App& app, const std::string& flags, std::string& value, const std::string& help);

// Adds a flag that may be repeated, with one text each. CLI11 would split a text such as "[a,b]".
CLI::Option* add_repeated(CLI::App& app, const std::string& flags, std::vector<std::string>& values,
                          const std::string& help);

// Returns the items of values such as "a,b", or of a JSON list of texts without commas.
std::vector<std::string> split_lists(const std::vector<std::string>& values);

// Throws Error(kInvalidArgument) that names the flag and the reason if `path` cannot be written, so that a
// command fails before its work. An empty path passes.
void check_writable(std::string_view flag, const std::string& path);

}  // namespace attend::cli
