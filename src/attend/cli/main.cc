// attend: the command. Thin; the work is in the floors below.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "attend/base/error.h"
#include "attend/cli/commands.h"
#include "attend/cli/version.h"
#include "attend/model/mapped_range.h"

namespace {

// Bad input of any kind: a flag, a file, a model that can not be served.
constexpr int kBadInput = 2;

// Says what went wrong, and gives the exit code back. Does not throw when stderr is gone too. A message may
// quote a file; what would move a terminal's cursor is not passed on.
int complain(std::string message, int exit_code) {
  for (char& c : message)
    if ((c >= 0 && c < ' ' && c != '\n') || c == '\x7f') c = '?';
  std::fputs(("attend: " + message + "\n").c_str(), stderr);
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  attend::exit_when_a_mapped_file_is_cut_short(kBadInput);
  CLI::App app("attend: run Hugging Face models with paged attention", "attend");
  app.require_subcommand(1);
  app.set_version_flag("--version", attend::cli::version_text, "Print version, commit and devices");
  attend::cli::Command selected;
  attend::cli::add_generate(app, selected);
  attend::cli::add_backends(app, selected);
  attend::cli::add_bench(app, selected);
  try {
    app.parse(argc, argv);
    const int exit_code = selected();
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
      attend::fail(attend::ErrorCode::kInvalidArgument, "stdout: can not be written to");
    return exit_code;
  } catch (const CLI::ParseError& error) {
    // Help and version are not errors.
    if (error.get_exit_code() == 0) return app.exit(error);
    return complain(std::string(error.what()) + " (see --help)", kBadInput);
  } catch (const attend::Error& error) {
    return complain(error.what(), error.code() == attend::ErrorCode::kInternal ? 1 : kBadInput);
  } catch (const std::bad_alloc&) {
    return complain(
        "out of memory: what was asked for does not fit; lower the sizes of the pool and the batch",
        kBadInput);
  } catch (const std::exception& error) {
    return complain(error.what(), 1);
  }
}
