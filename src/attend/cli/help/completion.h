// Completion scripts of shells, generated from the CLI11 tree: commands, flags with descriptions, and files
// as values.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace attend::cli {

inline constexpr std::string_view kShells = "bash, zsh or fish";

// Throws Error(kInvalidArgument) for other shells than kShells.
std::string completion_script(const CLI::App& app, std::string_view shell);

}  // namespace attend::cli
