// Help of commands as text for a terminal: groups of flags, wrapped to its width.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace attend::cli {

class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* command, std::string name, CLI::AppFormatMode mode) const override;
};

// Help of a command in at most `columns` columns.
std::string help_text(const CLI::App& command, size_t columns);

}  // namespace attend::cli
