// Manual pages of commands, generated from the CLI11 tree.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

namespace attend::cli {

// Returns the page of a command in roff with the macros of man(7). Its name is that of the command with
// hyphens: attend-bench-model(1).
std::string man_page(const CLI::App& command);

// Writes the pages of a command and of the commands below it to files in `folder` ("attend-serve.1"). Throws
// Error(kInvalidArgument) if one cannot be written.
void write_man_pages(const CLI::App& command, const std::filesystem::path& folder);

}  // namespace attend::cli
