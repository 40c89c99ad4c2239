// Command attend help: help of commands, manual pages, and the page on flags of other programs.

#include <memory>

#include "attend/base/error.h"
#include "attend/cli/command_line.h"
#include "attend/cli/commands/commands.h"
#include "attend/cli/help/man_page.h"
#include "attend/cli/options/flags.h"
#include "attend/cli/options/foreign_flags.h"
#include "attend/cli/standard_streams.h"

namespace attend::cli {
namespace {

constexpr const char* kOtherFlagsTopic = "other-flags";

struct HelpOptions {
  std::vector<std::string> topic;
  bool man = false;
  std::string man_folder;
};

int run(const CLI::App& app, const HelpOptions& options) {
  if (options.topic.size() == 1 && options.topic.front() == kOtherFlagsTopic) {
    require(!options.man, "--man: expected a command, not ", kOtherFlagsTopic);
    write_out(foreign_flags_page());
    return 0;
  }
  const CLI::App* command = find_command(app, options.topic);
  if (!options.man_folder.empty()) {
    write_man_pages(*command, options.man_folder);
    return 0;
  }
  write_out(options.man ? man_page(*command)
                        : command->get_formatter()->make_help(command, "", CLI::AppFormatMode::Normal));
  return 0;
}

}  // namespace

void add_help(CLI::App& app, Command& selected) {
  auto options = std::make_shared<HelpOptions>();
  CLI::App* command = app.add_subcommand("help", "Print the help of a command");
  command->add_option(
      "COMMAND", options->topic,
      "command, such as bench model; other-flags: a page about flags of llama.cpp, vLLM and SGLang");
  command->add_flag("--man", options->man,
                    "print the manual page in roff: attend help serve --man | man -l -");
  add_text(*command, "--man-folder", options->man_folder,
           "write the manual pages of the command, and of those below it, to files in this folder");
  command->callback(
      [&app, options, &selected] { selected = [&app, options] { return run(app, *options); }; });
}

}  // namespace attend::cli
