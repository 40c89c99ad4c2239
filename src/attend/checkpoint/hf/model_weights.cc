#include "attend/checkpoint/hf/model_weights.h"

#include <map>

#include "attend/base/error.h"
#include "attend/checkpoint/input_file.h"
#include "attend/checkpoint/json.h"

namespace attend {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

// A name that is one component, so that no index can make attend open a file elsewhere.
bool is_plain_file_name(const std::string& name) {
  const std::filesystem::path path(name);
  return !name.empty() && name != "." && name != ".." && path.filename() == path &&
         name.find('\0') == std::string::npos;
}

}  // namespace

ModelWeights::ModelWeights(const std::filesystem::path& directory) : directory_(directory) {
  require_directory(directory, "a model directory");
  if (file_exists(directory / kSingleFile)) {
    files_.emplace_back(directory / kSingleFile);
    for (const SafetensorsEntry& entry : files_[0].entries()) file_of_tensor_.emplace(entry.name, 0);
  } else if (file_exists(directory / kIndexFile)) {
    open_shards(directory / kIndexFile);
  } else {
    fail(ErrorCode::kNotFound, directory.string(), ": weights: expected ", kSingleFile, " or ", kIndexFile,
         gguf_note(directory));
  }
}

bool ModelWeights::are_in(const std::filesystem::path& directory) {
  return file_exists(directory / kSingleFile) || file_exists(directory / kIndexFile);
}

void ModelWeights::open_shards(const std::filesystem::path& index_path) {
  const std::optional<JsonNode> weight_map = JsonNode::read(index_path).find("weight_map");
  if (!weight_map)
    fail(ErrorCode::kCorruptFile, index_path.string(),
         ": weight_map is missing: expected an object of tensor names and file names");
  weight_map->object_size();
  std::map<std::string, size_t> file_index;
  for (const auto& [name, value] : weight_map->value().items()) {
    if (!value.is_string() || !is_plain_file_name(value.get<std::string>()))
      fail(ErrorCode::kCorruptFile, weight_map->where(name), " ", excerpt(value),
           ": expected the name of a file in the same directory");
    const auto shard = value.get<std::string>();
    const auto [found, added] = file_index.try_emplace(shard, files_.size());
    if (added) {
      if (!file_exists(directory_ / shard))
        fail(ErrorCode::kNotFound, (directory_ / shard).string(), ": missing shard, which ", kIndexFile,
             " names for tensor \"", name, "\"");
      files_.emplace_back(directory_ / shard);
    }
    const SafetensorsFile& file = files_[found->second];
    if (file.find(name) == nullptr)
      fail(ErrorCode::kCorruptFile, file.path().string(), ": no tensor \"", name, "\", which ", kIndexFile,
           " places there");
    file_of_tensor_.emplace(name, found->second);
  }
}

const SafetensorsFile* ModelWeights::locate(std::string_view name) const {
  const auto found = file_of_tensor_.find(std::string(name));
  return found == file_of_tensor_.end() ? nullptr : &files_[found->second];
}

const SafetensorsFile& ModelWeights::file_of(std::string_view name) const {
  const SafetensorsFile* file = locate(name);
  if (file == nullptr) fail(ErrorCode::kNotFound, directory_.string(), ": weights: no tensor \"", name, "\"");
  return *file;
}

std::vector<std::string> ModelWeights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_tensor_) names.push_back(name);
  return names;
}

const SafetensorsEntry& ModelWeights::entry(std::string_view name) const { return *file_of(name).find(name); }

Tensor ModelWeights::tensor(std::string_view name) const { return file_of(name).tensor(name); }

std::string ModelWeights::read(std::string_view name) const {
  const SafetensorsFile& file = file_of(name);
  return file.read(*file.find(name));
}

std::string ModelWeights::where(std::string_view name) const {
  return file_of(name).path().string() + ": tensor \"" + std::string(name) + "\"";
}

void ModelWeights::fetch(std::string_view name, const std::function<void(size_t bytes)>& fetched) const {
  const SafetensorsFile& file = file_of(name);
  file.fetch(*file.find(name), fetched);
}

void ModelWeights::read_ahead(const std::atomic<bool>& stop) const {
  for (const SafetensorsFile& file : files_) file.read_ahead(stop);
}

void ModelWeights::check_unchanged() const {
  for (const SafetensorsFile& file : files_) file.check_unchanged();
}

}  // namespace attend
