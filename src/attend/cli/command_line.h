// Checks of the command line that CLI11 does not do, or reports unclearly.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace attend::cli {

// Throws Error(kInvalidArgument) for a missing or unknown command (lists the commands), for a flag that would
// be read as the value of the flag before it ("--prompt --json"), and for a flag of llama.cpp (names the
// replacement).
void check_command_line(const CLI::App& app, const std::vector<std::string>& arguments);

// Returns the error message for arguments that belong to no flag, in the order in which they were given.
std::string unexpected_arguments(const CLI::App& app);

}  // namespace attend::cli
