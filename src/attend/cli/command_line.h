// What CLI11 takes without a word, or refuses in words that do not help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace attend::cli {

// Throws Error(kInvalidArgument) for a command that is missing or that there is not, naming those that there
// are, for a flag that would be read as the value of the one before it ("--prompt --json"), and for a flag of
// llama.cpp's, saying what there is instead.
void check_command_line(const CLI::App& app, const std::vector<std::string>& arguments);

// What to say of arguments that no flag takes, in the order in which they were given.
std::string unexpected_arguments(const CLI::App& app);

}  // namespace attend::cli
