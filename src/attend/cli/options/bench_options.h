// Flags that the benches of models share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "attend/cli/options/engine_options.h"

namespace attend::cli {

// A model instead of, or changed from, that of --model-path.
struct ModelChoice {
  std::string shape;
  std::string weight_format;
  int num_layers = 0;  // unless it is given: as the config says
};

void add_model_choice(CLI::App& app, ModelChoice& choice);
// to_config() with the model that was chosen. Throws Error(kInvalidArgument).
EngineConfig to_config(const CLI::App& app, const EngineOptions& options, const ModelChoice& choice);

}  // namespace attend::cli
