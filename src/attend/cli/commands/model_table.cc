#include "attend/cli/commands/model_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "attend/attention/resolver.h"
#include "attend/backends/table.h"
#include "attend/base/error.h"
#include "attend/model/config/model_spec.h"

namespace attend::cli {
namespace {

// Values of the examples of an architecture, each once.
struct Columns {
  std::set<std::string> caches, on_cpu, on_gpu;
};

std::string_view kind_of(const CacheSpec& cache) {
  switch (cache.kind) {
    case CacheKind::kFull:
      return "K/V";
    case CacheKind::kWindow:
      return "window";
    case CacheKind::kLatent:
      return cache.index_dim == 0 ? "latent rows" : "latent rows and index keys";
    case CacheKind::kState:
      return "state";
  }
  return "";
}

// Returns the backends of both phases, or that there is none.
std::string chosen_backends(const ModelSpec& spec, Architecture architecture) {
  const DType dtype = architecture == Architecture::kCpu ? DType::kF32 : DType::kBF16;
  try {
    const Resolution chosen = resolve(make_requirement(spec.geometry(dtype, dtype)),
                                      {.architecture = architecture}, {}, backend_table());
    if (chosen.prefill == chosen.decode) return std::string(chosen.prefill->name);
    return fmt::format("{}, {}", chosen.prefill->name, chosen.decode->name);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    return "none";
  }
}

void add_example(const std::filesystem::path& folder, std::map<std::string, Columns>& columns) {
  ModelSpec spec;
  try {
    spec = read_config(folder);
  } catch (const Error& error) {
    // Draft heads are no models.
    if (error.code() != ErrorCode::kUnsupported) throw;
    return;
  }
  if (spec.classifier) return;
  Columns& row = columns[spec.architecture];
  for (const CacheSpec& cache : spec.caches()) row.caches.emplace(kind_of(cache));
  row.on_cpu.insert(chosen_backends(spec, Architecture::kCpu));
  row.on_gpu.insert(chosen_backends(spec, Architecture::kHopper));
}

std::string joined(const std::set<std::string>& values) { return fmt::format("{}", fmt::join(values, "; ")); }

}  // namespace

std::string model_table(const std::filesystem::path& examples) {
  if (!std::filesystem::is_directory(examples))
    fail(ErrorCode::kNotFound, examples.string(), ": expected a folder of models");
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(examples))
    if (std::filesystem::exists(entry.path() / "config.json")) folders.push_back(entry.path());
  std::ranges::sort(folders);
  std::map<std::string, Columns> columns;
  for (const std::filesystem::path& folder : folders) add_example(folder, columns);
  // Two sections, since one would be too long for a page.
  std::string table;
  bool is_second = false;
  const auto begin_section = [&](std::string_view title) {
    table += fmt::format(
        "{}## Architectures {}\n\n| `architectures` in config.json | models | caches | CPU | Hopper |\n"
        "|---|---|---|---|---|\n",
        table.empty() ? "" : "\n", title);
  };
  begin_section("A to L");
  for (const std::string& name : supported_architectures()) {
    if (published_models(name).empty()) continue;
    if (!is_second && name >= "M") {
      is_second = true;
      begin_section("M to Z");
    }
    const Columns& row = columns[name];
    table += fmt::format("| `{}` | {} | {} | {} | {} |\n", name, published_models(name), joined(row.caches),
                         joined(row.on_cpu), joined(row.on_gpu));
  }
  return table;
}

}  // namespace attend::cli
