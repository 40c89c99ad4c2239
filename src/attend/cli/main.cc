// attend: the command. Thin; the work is in the floors below.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "attend/base/error.h"
#include "attend/cli/commands.h"

namespace {

// Bad input of any kind: a flag, a file, a model that can not be served.
constexpr int kBadInput = 2;

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("attend: run Hugging Face models with paged attention", "attend");
  app.require_subcommand(1);
  attend::cli::Command selected;
  attend::cli::add_generate(app, selected);
  attend::cli::add_backends(app, selected);
  try {
    app.parse(argc, argv);
    return selected();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kBadInput;
  } catch (const attend::Error& error) {
    fmt::print(stderr, "attend: {}\n", error.what());
    return error.code() == attend::ErrorCode::kInternal ? 1 : kBadInput;
  } catch (const std::exception& error) {
    fmt::print(stderr, "attend: {}\n", error.what());
    return 1;
  }
}
