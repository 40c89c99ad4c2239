// Commands of the program. Each adds itself to the app; its body runs after parsing.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace attend::cli {

// Body of a command, which runs after parsing and returns the exit code.
using Command = std::function<int()>;

// Sets `selected` to the body of the command on the command line.
void add_generate(CLI::App& app, Command& selected);
void add_chat(CLI::App& app, Command& selected);
void add_serve(CLI::App& app, Command& selected);
void add_backends(CLI::App& app, Command& selected);
void add_bench(CLI::App& app, Command& selected);
void add_embed(CLI::App& app, Command& selected);
void add_rerank(CLI::App& app, Command& selected);
void add_help(CLI::App& app, Command& selected);
void add_completion(CLI::App& app, Command& selected);

// Command "serving" of the group "bench".
void add_bench_serving(CLI::App& group, Command& selected);

}  // namespace attend::cli
