#include "attend/cli/help/help_formatter.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "attend/cli/help/command_help.h"
#include "attend/cli/standard_streams.h"

namespace attend::cli {
namespace {

constexpr size_t kMinColumns = 40, kMaxColumns = 110;
// Names longer than this have their own line.
constexpr size_t kIndent = 2, kNameColumns = 28;

// Returns a name and its description next to it.
std::string entry(const std::string& name, const std::string& description, size_t columns) {
  const size_t start = kIndent + kNameColumns;
  std::string text = std::string(kIndent, ' ') + name;
  bool has_room = name.size() + 1 < kNameColumns;
  if (has_room) text.append(start - text.size(), ' ');
  for (const std::string& line : wrap(description, columns - start)) {
    if (!has_room) text += "\n" + std::string(start, ' ');
    text += line;
    has_room = false;
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

std::string entry(const FlagHelp& flag, size_t columns) {
  // Long names are aligned whether or not a flag has a short one.
  const bool is_long = flag.names.front().starts_with("--");
  std::string name = fmt::format("{}{}", is_long ? "    " : "", fmt::join(flag.names, ", "));
  if (!flag.value.empty()) name += " " + flag.value;
  return entry(name, flag.description, columns);
}

std::string paragraph(const std::string& text, size_t columns) {
  return fmt::format("{}\n", fmt::join(wrap(text, columns), "\n"));
}

}  // namespace

std::string HelpFormatter::make_help(const CLI::App* command, std::string, CLI::AppFormatMode) const {
  return help_text(*command, std::clamp(terminal_columns(STDOUT_FILENO), kMinColumns, kMaxColumns));
}

std::string help_text(const CLI::App& command, size_t columns) {
  std::string text = paragraph(command.get_description(), columns) + "\nUsage: " + usage(command) + "\n";
  if (const auto commands = commands_of(command); !commands.empty()) {
    text += "\nCommands:\n";
    for (const CLI::App* one : commands) text += entry(one->get_name(), one->get_description(), columns);
  }
  if (const std::vector<FlagHelp> arguments = positionals(command); !arguments.empty()) {
    text += "\nArguments:\n";
    for (const FlagHelp& argument : arguments)
      text += entry(argument.names.front(), argument.description, columns);
  }
  for (const FlagGroup& group : flag_groups(command)) {
    text += fmt::format("\n{}:\n", group.title);
    for (const FlagHelp& flag : group.flags) text += entry(flag, columns);
  }
  if (command.get_parent() == nullptr && !command.get_footer().empty())
    text += "\n" + paragraph(command.get_footer(), columns);
  return text;
}

}  // namespace attend::cli
