// PeftConfig: adapter_config.json of an adapter.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attend/checkpoint/adapter_folder.h"

namespace attend {

struct PeftConfig {
  // Modules that the adapter changes. A list has ends of names: whole components after a dot.
  struct Targets {
    bool all = false;  // "all-linear", or not given
    std::vector<std::string> names;
    std::optional<std::string> pattern;  // regular expression that a complete name matches
    // False: a module that these fields select may have no adapter (exclude_modules, layers_to_transform).
    bool is_complete = true;
  };
  int rank = 8;
  double alpha = 8.0;
  bool rank_stabilized = false;
  // Regular expressions for ends of names, and their value; the first one that matches applies.
  std::vector<std::pair<std::string, int>> ranks;
  std::vector<std::pair<std::string, double>> alphas;
  Targets targets;
  std::string where;  // file, for errors

  // Rank and factor of B A x for a module, by its name in PEFT.
  int rank_of(const std::string& module) const;
  double scale_of(const std::string& module) const;
  // Returns whether the module must have an adapter.
  bool expects(const std::string& module) const;
};

// Throws Error(kCorruptFile) with the field for a value that PEFT does not accept, and Error(kUnsupported)
// for a kind of adapter that attend does not apply.
PeftConfig read_peft_config(const AdapterFolder& folder);

}  // namespace attend
