// Flags shared by benches of models.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "attend/cli/options/engine_options.h"

namespace attend::cli {

// Model that replaces, or is derived from, the one of --model-path.
struct ModelChoice {
  std::string shape;
  std::string weight_format;
  std::string draft_shape;
  int num_layers = 0;  // used if given; otherwise from the config
};

void add_model_choice(CLI::App& app, ModelChoice& choice);
// Like to_config(), but with the chosen model. Throws Error(kInvalidArgument).
EngineConfig to_config(const CLI::App& app, const EngineOptions& options, const ModelChoice& choice);

}  // namespace attend::cli
