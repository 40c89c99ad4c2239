#include "attend/cli/help/man_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <string_view>

#include "attend/base/error.h"
#include "attend/base/version.h"
#include "attend/cli/help/command_help.h"

namespace attend::cli {
namespace {

// Escapes a text for roff: backslashes, hyphens, and a dot or an apostrophe at the start of a line.
std::string escape(std::string_view text) {
  std::string escaped;
  if (text.starts_with('.') || text.starts_with('\'')) escaped = "\\&";
  for (const char c : text) {
    if (c == '\\')
      escaped += "\\e";
    else if (c == '-')
      escaped += "\\-";
    else
      escaped += c;
  }
  return escaped;
}

std::string page_name(const CLI::App& command) {
  std::string name = full_name(command);
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string entry(const FlagHelp& flag) {
  std::string names;
  for (const std::string& name : flag.names)
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", escape(name));
  if (!flag.value.empty()) names += fmt::format(" \\fI{}\\fR", escape(flag.value));
  return fmt::format(".TP\n{}\n{}\n", names, escape(flag.description));
}

}  // namespace

std::string man_page(const CLI::App& command) {
  const std::string name = page_name(command);
  std::string page =
      fmt::format(".TH {} 1 \"\" \"attend {}\" \"attend manual\"\n.SH NAME\n{} \\- {}\n", escape(upper(name)),
                  version(), escape(name), escape(command.get_description()));
  page += fmt::format(".SH SYNOPSIS\n\\fB{}\\fR\n", escape(usage(command)));
  const auto commands = commands_of(command);
  if (!commands.empty()) page += ".SH COMMANDS\n";
  for (const CLI::App* one : commands)
    page += fmt::format(".TP\n\\fB{}\\fR\n{}\n", escape(one->get_name()), escape(one->get_description()));
  const std::vector<FlagHelp> arguments = positionals(command);
  if (!arguments.empty()) page += ".SH ARGUMENTS\n";
  for (const FlagHelp& argument : arguments) page += entry(argument);
  for (const FlagGroup& group : flag_groups(command)) {
    page += fmt::format(".SH {}\n", escape(upper(group.title)));
    for (const FlagHelp& flag : group.flags) page += entry(flag);
  }
  std::string others;
  for (const CLI::App* one : commands)
    others += fmt::format("{}\\fB{}\\fR(1)", others.empty() ? "" : ", ", escape(page_name(*one)));
  if (const CLI::App* parent = command.get_parent(); parent != nullptr)
    others += fmt::format("{}\\fB{}\\fR(1)", others.empty() ? "" : ", ", escape(page_name(*parent)));
  return page + ".SH SEE ALSO\n" + others + "\n";
}

void write_man_pages(const CLI::App& command, const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / (page_name(command) + ".1");
  std::ofstream file(path);
  file << man_page(command);
  file.close();
  require(file.good(), path.string(), ": cannot be written");
  for (const CLI::App* one : commands_of(command)) write_man_pages(*one, folder);
}

}  // namespace attend::cli
