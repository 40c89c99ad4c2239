// Program attend: parses the command line and runs a command. The work is done in lower floors.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "attend/attention/resolver.h"
#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/base/printable.h"
#include "attend/base/version.h"
#include "attend/checkpoint/mapped_range.h"
#include "attend/cli/build_info.h"
#include "attend/cli/command_line.h"
#include "attend/cli/commands/commands.h"
#include "attend/cli/help/command_help.h"
#include "attend/cli/help/help_formatter.h"
#include "attend/cli/standard_streams.h"
#include "attend/kernels/common/cpu/isa.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

// Exit code for invalid input: a flag, a file, or a model that cannot be served.
constexpr int kBadInput = 2;

// Prints an error and returns the exit code. Does not throw, even if stderr is closed. A message may quote a
// file, so control characters are removed.
int report_error(std::string_view message, int exit_code) {
  constexpr size_t kMaxMessageBytes = 4000;
  std::fputs(("attend: " + printable(elide(message, kMaxMessageBytes)) + "\n").c_str(), stderr);
  return exit_code;
}

void set_level(const std::string& name) {
  constexpr std::pair<std::string_view, LogLevel> kLevels[] = {{"debug", LogLevel::kDebug},
                                                               {"info", LogLevel::kInfo},
                                                               {"warning", LogLevel::kWarning},
                                                               {"error", LogLevel::kError}};
  for (const auto& [level_name, level] : kLevels)
    if (name == level_name) return set_log_level(level);
  fail(ErrorCode::kInvalidArgument, "--log-level '", name, "': expected debug, info, warning or error");
}

// Returns the text of --version: the version, the commit and the devices.
std::string version_text() {
  const Hardware cpu = detect_cpu();
  std::string text =
      fmt::format("attend {} (git {})\ncpu     {}, {} cores, {}\n", version(), cli::kGitHash, cpu.name,
                  cpu.num_workers, kernels::cpu::to_string(kernels::cpu::detect_isa()));
  if (!cli::kHasCuda) return text + "cuda    not in this build";
  const int num_gpus = cuda::device_count();
  if (num_gpus == 0) return text + "cuda    no GPU found";
  for (int i = 0; i < num_gpus; ++i) {
    const cuda::DeviceInfo gpu = cuda::device_info({DeviceType::kCuda, i});
    text += fmt::format("{}cuda:{}  {}, {}.{}, {} SMs, {:.0f} GB", i > 0 ? "\n" : "", i, gpu.name, gpu.major,
                        gpu.minor, gpu.num_sms, static_cast<double>(gpu.total_bytes) / 1e9);
  }
  return text;
}

// Adds the flags that every command has.
void add_common_options(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    add_common_options(*command);
    if (!cli::commands_of(*command).empty()) continue;
    cli::set_group(*command, cli::kOtherFlags);
    command
        ->add_option_function<std::string>(
            "--log-level", set_level, "minimum level of messages on stderr: debug, info, warning or error")
        ->type_name("LEVEL")
        ->default_str("info");
  }
}

int run(int argc, char** argv) {
  CLI::App app("attend: run Hugging Face models with paged attention", "attend");
  app.formatter(std::make_shared<cli::HelpFormatter>());  // commands that are added later inherit it
  app.set_help_flag("-h,--help", "print this help and exit");
  app.footer(
      "attend help COMMAND prints the help of a command, attend COMMAND --help too. Models are Hugging Face "
      "models: attend "
      "chat Qwen/Qwen3-0.6B.");
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text, "print version, commit and devices");
  cli::Command selected;
  cli::add_generate(app, selected);
  cli::add_chat(app, selected);
  cli::add_serve(app, selected);
  cli::add_backends(app, selected);
  cli::add_bench(app, selected);
  cli::add_embed(app, selected);
  cli::add_rerank(app, selected);
  cli::add_help(app, selected);
  cli::add_completion(app, selected);
  add_common_options(app);
  try {
    cli::CommandLine line = cli::read_command_line(app, {argv + std::min(argc, 1), argv + argc});
    std::ranges::reverse(line.arguments);  // the order that parse() expects
    app.parse(std::move(line.arguments));
    for (const std::string& note : line.notes) log_info(note);
    const int exit_code = selected();
    cli::flush_out();
    return exit_code;
  } catch (const CLI::ExtrasError&) {
    return report_error(cli::unexpected_arguments(app) + " (see --help)", kBadInput);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0)
      return report_error(std::string(error.what()) + " (see --help)", kBadInput);
    app.exit(error);  // help and version are not errors
    cli::flush_out();
    return 0;
  }
}

}  // namespace
}  // namespace attend

int main(int argc, char** argv) {
  using namespace attend;
  exit_on_truncated_mapping(kBadInput);
  try {
    cli::open_standard_streams();
    return run(argc, argv);
  } catch (const Error& error) {
    return report_error(error.what(), error.code() == ErrorCode::kInternal ? 1 : kBadInput);
  } catch (const std::bad_alloc&) {
    return report_error(
        "out of memory; lower --max-total-tokens, --max-running-requests, "
        "--chunked-prefill-size or --context-length",
        kBadInput);
  } catch (const std::system_error& error) {
    return report_error(error.what(), kBadInput);  // errors of files and streams
  } catch (const std::exception& error) {
    return report_error(error.what(), 1);
  }
}
