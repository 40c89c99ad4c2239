// Command line before CLI11 parses it: checks that CLI11 does not do or reports unclearly, and flags of other
// programs.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace attend::cli {

struct CommandLine {
  std::vector<std::string> arguments;  // for CLI11
  std::vector<std::string> notes;      // log lines about accepted flags of other programs
};

// Replaces flags of llama.cpp, vLLM and SGLang (options/foreign_flags.h). Throws Error(kInvalidArgument) for
// a missing or unknown command (lists the commands), for an unknown flag (names a similar one), for a flag
// that would be read as the value of the flag before it ("--prompt --json"), and for a flag of another
// program that is not accepted.
CommandLine read_command_line(const CLI::App& app, const std::vector<std::string>& arguments);

// Returns the command of these words ("bench model"), at most as deep as they go. Throws
// Error(kInvalidArgument) for an unknown command.
const CLI::App* find_command(const CLI::App& app, const std::vector<std::string>& words);

// Returns the error message for arguments that belong to no flag, in the order in which they were given.
std::string unexpected_arguments(const CLI::App& app);

}  // namespace attend::cli
