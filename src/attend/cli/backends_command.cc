// attend backends: every backend, what it can do, and which one a model gets.

#include <fmt/format.h>

#include <memory>

#include "attend/attention/resolver.h"
#include "attend/backends/table.h"
#include "attend/cli/commands.h"
#include "attend/cli/engine_options.h"
#include "attend/cli/support_matrix.h"
#include "attend/model/config.h"

namespace attend::cli {
namespace {

std::string capabilities() {
  std::string lines;
  for (const BackendEntry& entry : backend_table())
    lines += fmt::format("{:<14} {}\n", entry.name, describe(entry));
  return lines;
}

// One line per backend: chosen for what, or every reason why not.
std::string choice(const EngineConfig& config) {
  const ModelConfig model = read_config(config.model_path);
  const DType own_dtype = config.device.type == DeviceType::kCuda ? model.dtype : DType::kF32;
  const Requirement requirement = requirement_of(
      model.geometry(config.dtype.value_or(own_dtype), config.kv_cache_dtype.value_or(model.dtype)));
  const Resolution resolution =
      resolve(requirement, detect_hardware(config.device), config.wishes, backend_table());
  std::string lines =
      fmt::format("\n{} at {}: {}\n", model.architecture, config.model_path.string(), resolution.why);
  for (const BackendEntry& entry : backend_table()) {
    std::string verdict;
    const auto add = [&](const std::string& text) { verdict += (verdict.empty() ? "" : "; ") + text; };
    if (&entry == resolution.prefill) add("chosen for prefill");
    if (&entry == resolution.decode) add("chosen for decode");
    for (const Refusal& refusal : resolution.refusals)
      if (refusal.backend == entry.name)
        for (const std::string& reason : refusal.reasons) add(reason);
    if (verdict.empty()) verdict = "could serve; not preferred";
    lines += fmt::format("{:<14} {}\n", entry.name, verdict);
  }
  return lines;
}

}  // namespace

void add_backends(CLI::App& app, Command& selected) {
  struct BackendsOptions {
    EngineOptions engine;
    bool markdown = false;
  };
  auto options = std::make_shared<BackendsOptions>();
  CLI::App* command = app.add_subcommand("backends", "List attention backends, and which one a model gets");
  add_engine_options(*command, options->engine, /*model_required=*/false);
  command->add_flag("--markdown", options->markdown, "Print the support matrix of docs/ instead");
  command->callback([command, options, &selected] {
    selected = [command, options] {
      if (options->markdown) {
        fmt::print("{}", support_matrix(backend_table()));
        return 0;
      }
      const EngineConfig config = to_config(*command, options->engine);
      // Everything that can fail comes before the first line.
      const std::string chosen = options->engine.model_path.empty() ? std::string() : choice(config);
      fmt::print("{}{}", capabilities(), chosen);
      return 0;
    };
  });
}

}  // namespace attend::cli
