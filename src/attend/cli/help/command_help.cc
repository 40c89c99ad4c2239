#include "attend/cli/help/command_help.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace attend::cli {
namespace {

// Group names of options are strings of CLI11, which cannot order flags within a group. The order of the
// usual flags is therefore a suffix of the group's name: "Usual flags\x01a".
constexpr char kOrder = '\x01';

std::string title_of(const CLI::Option& option) {
  const std::string& group = option.get_group();
  if (group == "Options") return kOtherFlags;  // CLI11's default
  return group.substr(0, group.find(kOrder));
}

// Number of characters, not bytes, of UTF-8.
size_t num_columns(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

FlagHelp to_help(const CLI::Option& option) {
  FlagHelp help;
  for (const std::string& name : option.get_snames()) help.names.push_back("-" + name);
  const std::vector<std::string>& opposites = option.get_fnames();
  bool is_first = true;
  for (const std::string& name : option.get_lnames()) {
    const bool is_opposite = std::ranges::find(opposites, name) != opposites.end();
    if (is_opposite || std::exchange(is_first, false))
      help.names.push_back("--" + name);
    else
      help.aliases.push_back("--" + name);
  }
  if (option.get_type_size() != 0) help.value = option.get_type_name();
  if (option.get_positional() && help.names.empty())
    help.names.push_back(option.get_name(/*positional=*/true));
  std::vector<std::string> notes;
  if (option.get_required()) notes.emplace_back("required");
  if (!option.get_default_str().empty()) notes.push_back("default: " + option.get_default_str());
  if (!option.get_envname().empty()) notes.push_back("environment: " + option.get_envname());
  if (!help.aliases.empty()) notes.push_back(fmt::format("also {}", fmt::join(help.aliases, ", ")));
  help.description = option.get_description();
  if (!notes.empty()) help.description += fmt::format(" [{}]", fmt::join(notes, "; "));
  return help;
}

}  // namespace

void set_group(CLI::App& command, const std::string& title) { command.option_defaults()->group(title); }

void set_usual_flags(CLI::App& command, const std::vector<std::string>& flags) {
  char order = 'a';
  for (const std::string& flag : flags)
    command.get_option(flag)->group(std::string(kUsualFlags) + kOrder + order++);
}

std::vector<FlagGroup> flag_groups(const CLI::App& command) {
  std::vector<const CLI::Option*> options;
  for (const CLI::Option* option : command.get_options())
    if (option->nonpositional() && !option->get_group().empty()) options.push_back(option);
  const auto rank = [](const CLI::Option* option) {
    const std::string title = title_of(*option);
    return title == kUsualFlags ? 0 : title == kOtherFlags ? 2 : 1;
  };
  std::ranges::stable_sort(options, [&](const CLI::Option* a, const CLI::Option* b) {
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return rank(a) == 0 && a->get_group() < b->get_group();
  });
  std::vector<FlagGroup> groups;
  for (const CLI::Option* option : options) {
    const std::string title = title_of(*option);
    auto group = std::ranges::find(groups, title, &FlagGroup::title);
    if (group == groups.end()) group = groups.insert(groups.end(), {title, {}});
    group->flags.push_back(to_help(*option));
  }
  return groups;
}

std::vector<FlagHelp> positionals(const CLI::App& command) {
  std::vector<FlagHelp> found;
  for (const CLI::Option* option : command.get_options())
    if (!option->nonpositional()) found.push_back(to_help(*option));
  return found;
}

std::vector<const CLI::App*> commands_of(const CLI::App& command) {
  return command.get_subcommands([](const CLI::App*) { return true; });
}

std::string full_name(const CLI::App& command) {
  return command.get_parent() == nullptr ? command.get_name()
                                         : full_name(*command.get_parent()) + " " + command.get_name();
}

std::string usage(const CLI::App& command) {
  std::string text = full_name(command);
  if (!commands_of(command).empty()) return text + " COMMAND [FLAGS]";
  text += " [FLAGS]";
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = option->get_name(/*positional=*/true);
    if (option->nonpositional())  // may be given by its flag instead
      text += fmt::format(" [{}]", name);
    else
      text += option->get_required() ? " " + name : fmt::format(" [{}...]", name);
  }
  return text;
}

std::vector<std::string> wrap(std::string_view text, size_t columns) {
  std::vector<std::string> lines;
  std::string line;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    begin = end + 1;
    if (word.empty()) continue;
    if (!line.empty() && num_columns(line) + 1 + num_columns(word) > columns)
      lines.push_back(std::exchange(line, {}));
    if (!line.empty()) line += ' ';
    line += word;
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace attend::cli
