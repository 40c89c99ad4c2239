// Command attend help: help of commands, and the page on flags of other programs.

#include <memory>

#include "attend/cli/command_line.h"
#include "attend/cli/commands/commands.h"
#include "attend/cli/options/foreign_flags.h"
#include "attend/cli/standard_streams.h"

namespace attend::cli {
namespace {

constexpr const char* kOtherFlags = "other-flags";

int run(const CLI::App& app, const std::vector<std::string>& topic) {
  if (topic.size() == 1 && topic.front() == kOtherFlags)
    write_out(foreign_flags_page());
  else
    write_out(find_command(app, topic)->help());
  return 0;
}

}  // namespace

void add_help(CLI::App& app, Command& selected) {
  auto topic = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("help", "Print the help of a command");
  command->add_option(
      "COMMAND", *topic,
      "command, such as bench model; other-flags: a page about flags of llama.cpp, vLLM and SGLang");
  command->callback([&app, topic, &selected] { selected = [&app, topic] { return run(app, *topic); }; });
}

}  // namespace attend::cli
