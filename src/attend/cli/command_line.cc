#include "attend/cli/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/printable.h"
#include "attend/cli/options/llama_cpp_flags.h"

namespace attend::cli {
namespace {

constexpr size_t kMaxArgumentBytes = 60;

// Returns the edit distance: insertions, deletions and replacements of characters.
size_t distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= from.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::vector<const CLI::App*> all_commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// Returns "expected one of generate, backends, bench".
std::string known_commands(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : all_commands(app))
    names += (names.empty() ? "" : ", ") + command->get_name();
  return "expected one of " + names;
}

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
  const std::vector<const CLI::App*> commands = all_commands(app);
  for (const CLI::App* command : commands)
    if (command->get_name() == name) return command;
  const auto nearest =
      *std::min_element(commands.begin(), commands.end(), [&](const CLI::App* a, const CLI::App* b) {
        return distance(name, a->get_name()) < distance(name, b->get_name());
      });
  const bool meant = name.size() <= kMaxArgumentBytes && distance(name, nearest->get_name()) <= 2;
  fail(ErrorCode::kInvalidArgument, "command ", elide(name, kMaxArgumentBytes), ": ", known_commands(app),
       meant ? " (" + nearest->get_name() + "?)" : "", " (see --help)");
}

const CLI::Option* find_option(const CLI::App& app, const std::string& name) {
  for (const CLI::Option* option : app.get_options())
    if (name.starts_with('-') && option->check_name(name)) return option;
  return nullptr;
}

// Rejects flags of llama.cpp that CLI11 would read as short flags ("-ngl" as -n), and -h followed by other
// letters, which it would read as --help.
void reject_unknown(const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  const std::string_view instead = suggest_for_llama_cpp_flag(name);
  require(instead.empty(), name, ": a flag of llama.cpp; in attend: ", instead);
  require(!argument.starts_with("-h") || argument == "-h", "argument ", elide(argument, kMaxArgumentBytes),
          ": unknown flag (see --help)");
}

}  // namespace

void check_command_line(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* command = &app;
  size_t i = 0;
  for (; !all_commands(*command).empty(); ++i) {
    if (i == arguments.size()) fail(ErrorCode::kInvalidArgument, "no command: ", known_commands(*command));
    if (find_option(*command, arguments[i]) != nullptr) break;  // --help, --version
    if (arguments[i].starts_with('-')) {
      reject_unknown(arguments[i]);
      fail(ErrorCode::kInvalidArgument, "no command before ", elide(arguments[i], kMaxArgumentBytes), ": ",
           known_commands(*command));
    }
    command = find_command(*command, arguments[i]);
  }
  for (; i < arguments.size(); ++i) {
    const CLI::Option* option = find_option(*command, arguments[i]);
    if (option == nullptr) reject_unknown(arguments[i]);
    if (option == nullptr || option->get_items_expected_min() == 0 || i + 1 == arguments.size()) continue;
    const std::string& value = arguments[i + 1];
    require(find_option(*command, value) == nullptr, arguments[i], ": expected a value, but ", value,
            " is a flag (as a value: ", arguments[i], "=", value, ")");
    ++i;
  }
}

std::string unexpected_arguments(const CLI::App& app) {
  constexpr size_t kMaxNamed = 5;
  const std::vector<std::string> arguments = app.remaining(/*recurse=*/true);
  std::string names;
  for (size_t i = 0; i < std::min(arguments.size(), kMaxNamed); ++i)
    names += (i > 0 ? ", " : "") + elide(arguments[i], kMaxArgumentBytes);
  if (arguments.size() > kMaxNamed) names += fmt::format(" and {} more", arguments.size() - kMaxNamed);
  return fmt::format("{} not expected",
                     arguments.size() == 1 ? "argument " + names + ": is" : "arguments " + names + ": are");
}

}  // namespace attend::cli
