// Table of the supported architectures, from their records and from the configs of example models.
#pragma once

#include <filesystem>
#include <string>

namespace attend::cli {

// Returns the tables of docs/models.md: a row per architecture, with its published models, the caches of its
// layers and the attention backends that are chosen on a CPU and on a Hopper GPU. The last three are those of
// the models in subfolders of `examples`; architectures without one have empty columns. Throws
// Error(kNotFound) for a folder that does not exist.
std::string model_table(const std::filesystem::path& examples);

}  // namespace attend::cli
