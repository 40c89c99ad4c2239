// Command attend completion: prints a script with which a shell completes commands and flags.

#include <memory>
#include <string>

#include "attend/cli/commands/commands.h"
#include "attend/cli/help/completion.h"
#include "attend/cli/standard_streams.h"

namespace attend::cli {

void add_completion(CLI::App& app, Command& selected) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("completion", "Print a completion script: source <(attend completion bash)");
  command->add_option("SHELL", *shell, "shell: " + std::string(kShells))->required();
  command->callback([&app, shell, &selected] {
    selected = [&app, shell] {
      write_out(completion_script(app, *shell));
      return 0;
    };
  });
}

}  // namespace attend::cli
