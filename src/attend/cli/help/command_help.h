// Flags of a command as help, man pages and completions show them, read from the CLI11 tree.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace attend::cli {

// Groups of flags, in the order in which help shows them. kUsual comes first; flags without a group are in
// kOther.
inline constexpr const char* kUsualFlags = "Usual flags";
inline constexpr const char* kOtherFlags = "Other flags";

// Sets the group of the flags that are added to the command from now on.
void set_group(CLI::App& command, const std::string& title);
// Moves these flags to the group kUsualFlags, which shows them in this order.
void set_usual_flags(CLI::App& command, const std::vector<std::string>& flags);

struct FlagHelp {
  std::vector<std::string>
      names;  // "-m", "--model-path"; opposites, such as "--disable-x" of "--enable-x", included
  std::vector<std::string> aliases;  // further names of the same meaning
  std::string value;                 // "NUMBER"; empty: no value
  std::string description;           // with default, environment variable and aliases
};

struct FlagGroup {
  std::string title;
  std::vector<FlagHelp> flags;
};

// Groups in the order in which they were set; positional arguments are not included.
std::vector<FlagGroup> flag_groups(const CLI::App& command);
std::vector<FlagHelp> positionals(const CLI::App& command);

// Commands directly below this one.
std::vector<const CLI::App*> commands_of(const CLI::App& command);
// "attend bench model"
std::string full_name(const CLI::App& command);
// "attend serve [FLAGS] [MODEL]"
std::string usage(const CLI::App& command);

// Breaks a text into lines of at most `columns` characters at spaces. A longer word has its own line.
std::vector<std::string> wrap(std::string_view text, size_t columns);

}  // namespace attend::cli
