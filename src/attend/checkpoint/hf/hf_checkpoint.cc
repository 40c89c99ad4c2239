#include "attend/checkpoint/hf/hf_checkpoint.h"

#include <array>
#include <map>

#include "attend/base/error.h"
#include "attend/checkpoint/input_file.h"
#include "attend/checkpoint/model_folder.h"

namespace attend {
namespace {

// File name and maximum size, indexed by CheckpointDocument.
struct DocumentFile {
  const char* name;
  size_t max_bytes = kMaxJsonFileBytes;
};
constexpr std::array<DocumentFile, 7> kDocumentFiles{{{"hf_quant_config.json"},
                                                      {"generation_config.json"},
                                                      {"tokenizer.json", kMaxTokenizerFileBytes},
                                                      {"tokenizer_config.json"},
                                                      {"special_tokens_map.json"},
                                                      {"preprocessor_config.json"},
                                                      {"processor_config.json"}}};

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

// Returns true for a name with one path component, so that an index cannot refer to a file elsewhere.
bool is_plain_file_name(const std::string& name) {
  const std::filesystem::path path(name);
  return !name.empty() && name != "." && name != ".." && path.filename() == path &&
         name.find('\0') == std::string::npos;
}

}  // namespace

HfTensors::HfTensors(const std::filesystem::path& directory) : TensorFiles(directory) {
  require_directory(directory, "a model directory");
  if (file_exists(directory / kSingleFile)) {
    files_.push_back(SafetensorsFile(directory / kSingleFile));
    for (const TensorEntry& entry : files_[0].entries()) tensor_file_.emplace(entry.name, 0);
  } else if (file_exists(directory / kIndexFile)) {
    open_shards(directory / kIndexFile);
  } else {
    fail(ErrorCode::kNotFound, directory.string(), ": weights: expected ", kSingleFile, " or ", kIndexFile,
         note_on_missing(MissingFile::kWeights, directory));
  }
}

bool HfTensors::are_in(const std::filesystem::path& directory) {
  return file_exists(directory / kSingleFile) || file_exists(directory / kIndexFile);
}

void HfTensors::open_shards(const std::filesystem::path& index_path) {
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
      if (!file_exists(path() / shard))
        fail(ErrorCode::kNotFound, (path() / shard).string(), ": missing shard, required by ", kIndexFile,
             " for tensor \"", name, "\"");
      files_.push_back(SafetensorsFile(path() / shard));
    }
    const TensorFile& file = files_[found->second];
    if (file.find(name) == nullptr)
      fail(ErrorCode::kCorruptFile, file.path().string(), ": no tensor \"", name, "\", required by ",
           kIndexFile);
    tensor_file_.emplace(name, found->second);
  }
}

JsonNode HfCheckpoint::config() const {
  require_directory(path(),
                    "a model directory as Hugging Face has them, with config.json and safetensors, a GGUF "
                    "file, or the name of a model in the Hugging Face cache (nothing is downloaded: run `hf "
                    "download ORG/MODEL`)");
  if (!file_exists(path() / "config.json"))
    if (const std::string note = note_on_missing(MissingFile::kConfig, path()); !note.empty())
      fail(ErrorCode::kNotFound, path().string(),
           ": no config.json: expected a model directory as Hugging Face has them, with config.json, "
           "tokenizer.json and safetensors",
           note);
  return JsonNode::read(path() / "config.json");
}

std::optional<JsonNode> HfCheckpoint::find(CheckpointDocument document) const {
  const DocumentFile& known = kDocumentFiles[static_cast<size_t>(document)];
  const std::filesystem::path file = path() / known.name;
  if (!file_exists(file)) return std::nullopt;
  return JsonNode::read(file, known.max_bytes);
}

std::optional<CheckpointText> HfCheckpoint::chat_template() const {
  const std::filesystem::path file = path() / "chat_template.jinja";
  if (!file_exists(file)) return std::nullopt;
  return CheckpointText{.where = file.string(), .text = read_file(file, kMaxTemplateBytes)};
}

bool HfCheckpoint::has_tensors() const { return HfTensors::are_in(path()); }

std::shared_ptr<const CheckpointTensors> HfCheckpoint::open_tensors() const {
  return std::make_shared<HfTensors>(path());
}

}  // namespace attend
