#include "attend/checkpoint/hf/hub_cache.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>

#include "attend/base/error.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/input_file.h"

namespace attend {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelFolder = "models--", kSeparator = "--";

// Returns the value of a variable, with ~ at its start replaced by the home directory. Empty counts as unset.
std::optional<fs::path> folder_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  const std::string text = value;
  const char* home = std::getenv("HOME");
  if (home != nullptr && (text == "~" || text.starts_with("~/"))) return home + text.substr(1);
  return text;
}

// Returns true for names of repositories: MODEL or ORG/MODEL.
bool is_repository_name(std::string_view name) {
  constexpr size_t kMaxBytes = 96;
  const auto is_part = [](std::string_view part) {
    return !part.empty() && part.front() != '.' && part.front() != '-' && part.find("..") == part.npos &&
           part.find(kSeparator) == part.npos && std::ranges::all_of(part, [](unsigned char c) {
             return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
           });
  };
  const size_t slash = name.find('/');
  if (name.size() > kMaxBytes) return false;
  return slash == name.npos ? is_part(name)
                            : is_part(name.substr(0, slash)) && is_part(name.substr(slash + 1));
}

std::string folder_name(std::string_view model) {
  std::string name(kModelFolder);
  for (const char c : model) name += c == '/' ? kSeparator : std::string_view(&c, 1);
  return name;
}

// Returns the snapshot of the revision main.
fs::path find_snapshot(const std::string& model, const fs::path& folder) {
  constexpr size_t kMaxRefBytes = 256;
  const fs::path ref = folder / "refs" / "main";
  std::string commit;
  if (file_exists(ref)) commit = read_file(ref, kMaxRefBytes);
  while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back())) != 0) commit.pop_back();
  const fs::path snapshot = folder / "snapshots" / commit;
  const bool is_commit = !commit.empty() && commit.find('/') == commit.npos && commit != "..";
  if (!is_commit || !fs::is_directory(snapshot))
    fail(ErrorCode::kNotFound, model, ": ", folder.string(),
         " has no snapshot of the revision main: run `hf download ", model,
         "`, or pass a folder of its snapshots/");
  return snapshot;
}

}  // namespace

fs::path hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const auto folder = folder_variable(name)) return *folder;
  if (const auto folder = folder_variable("HF_HOME")) return *folder / "hub";
  if (const auto folder = folder_variable("XDG_CACHE_HOME")) return *folder / "huggingface" / "hub";
  if (const auto home = folder_variable("HOME")) return *home / ".cache" / "huggingface" / "hub";
  return {};
}

std::string cached_model_name(std::string_view folder_name) {
  if (!folder_name.starts_with(kModelFolder)) return {};
  std::string name(folder_name.substr(kModelFolder.size()));
  if (const size_t at = name.find(kSeparator); at != name.npos) name.replace(at, kSeparator.size(), "/");
  return is_repository_name(name) ? name : "";
}

std::vector<std::string> cached_models(const fs::path& cache, size_t max_names) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(cache, error), end; !error && entry != end; entry.increment(error))
    if (std::string name = cached_model_name(entry->path().filename().string()); !name.empty())
      names.push_back(std::move(name));
  std::ranges::sort(names);
  names.resize(std::min(names.size(), max_names));
  return names;
}

fs::path find_model(const std::string& name) {
  std::error_code error;
  const bool exists = fs::symlink_status(name, error).type() != fs::file_type::not_found;
  if (exists || !is_repository_name(name)) return name;
  const fs::path cache = hub_cache();
  if (!cache.empty())
    if (const fs::path folder = cache / folder_name(name); fs::is_directory(folder, error))
      return find_snapshot(name, folder);
  // A single word is more likely the name of a folder.
  if (name.find('/') == name.npos) return name;
  fail(ErrorCode::kNotFound, name,
       ": no such directory, and no model of this name in the Hugging Face cache ", cache.string(),
       "; nothing is downloaded: run `hf download ", name, "`");
}

}  // namespace attend
