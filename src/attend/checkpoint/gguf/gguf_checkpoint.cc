#include "attend/checkpoint/gguf/gguf_checkpoint.h"

#include <utility>

#include "attend/base/error.h"
#include "attend/checkpoint/gguf/gguf_architectures.h"
#include "attend/checkpoint/gguf/gguf_config.h"
#include "attend/checkpoint/gguf/gguf_tokenizer.h"

namespace attend {
namespace {

// Entry of a tensor, or of one expert of it, with the shape that readers of blocks expect: [.., rows, blocks,
// bytes per block].
TensorEntry make_entry(std::string name, const GgufTensorInfo& tensor, std::vector<int64_t> shape,
                       uint64_t begin, uint64_t end) {
  TensorEntry entry{.name = std::move(name),
                    .dtype_name = std::string(tensor.type->name),
                    .dtype = tensor.type->dtype,
                    .shape = std::move(shape),
                    .begin = begin,
                    .end = end,
                    .block_format = tensor.type->block_format};
  if (entry.block_format) {
    entry.dtype = DType::kU8;
    entry.shape.back() /= tensor.type->block_elements;
    entry.shape.push_back(tensor.type->block_bytes);
  }
  return entry;
}

// `file`: its name in errors.
void add_entries(const GgufArchitecture& architecture, const GgufTensorInfo& tensor, const std::string& file,
                 std::vector<TensorEntry>& entries) {
  constexpr uint64_t kMaxExperts = 1 << 16;
  constexpr std::string_view kConvolution = ".conv.weight";
  const std::string name = hf_tensor_name(architecture, tensor.name);
  if (name.empty()) return;
  std::vector<int64_t> shape = tensor.shape;
  const size_t star = name.find('*');
  if (star == std::string::npos || shape.size() < 2) {
    if (name.ends_with(kConvolution) && shape.size() == 2) shape.insert(shape.begin() + 1, 1);
    entries.push_back(make_entry(name, tensor, std::move(shape), tensor.begin, tensor.end));
    return;
  }
  const auto num_experts = static_cast<uint64_t>(shape[0]);
  if (num_experts > kMaxExperts)
    fail(ErrorCode::kUnsupported, file, ": tensor ", excerpt(std::string(tensor.name)), ": ", num_experts,
         " experts: attend supports at most ", kMaxExperts);
  const uint64_t expert_bytes = (tensor.end - tensor.begin) / num_experts;
  shape.erase(shape.begin());
  for (uint64_t expert = 0; expert < num_experts; ++expert)
    entries.push_back(make_entry(name.substr(0, star) + std::to_string(expert) + name.substr(star + 1),
                                 tensor, shape, tensor.begin + expert * expert_bytes,
                                 tensor.begin + (expert + 1) * expert_bytes));
}

// Converts integers to unsigned ones, as the parser of JSON files returns them. None is negative.
void make_unsigned(Json& json) {
  if (json.is_number_integer()) json = static_cast<uint64_t>(json.get<int64_t>());
  if (json.is_structured())
    for (Json& element : json) make_unsigned(element);
}

JsonNode document(Json json, const std::filesystem::path& path) {
  make_unsigned(json);
  return JsonNode(std::move(json), path.string());
}

}  // namespace

GgufTensors::GgufTensors(const std::filesystem::path& path, std::vector<GgufFile> files) : TensorFiles(path) {
  const GgufArchitecture& architecture = find_gguf_architecture(files[0]);
  for (const GgufFile& file : files) {
    std::vector<TensorEntry> entries;
    for (const GgufTensorInfo& tensor : file.header().tensors) {
      if (!tensor.type->dtype && !tensor.type->block_format)
        fail(ErrorCode::kUnsupported, file.name(), ": tensor ", excerpt(std::string(tensor.name)), ": type ",
             tensor.type->name, ": attend supports ", supported_gguf_tensor_types());
      add_entries(architecture, tensor, file.name(), entries);
      if (architecture.adds_one_to_norms && tensor.shape.size() == 1 && tensor.name.ends_with("norm.weight"))
        norms_plus_one_.insert(entries.back().name);
    }
    for (const TensorEntry& entry : entries)
      if (!tensor_file_.emplace(entry.name, files_.size()).second)
        fail(ErrorCode::kCorruptFile, file.name(), ": tensor \"", entry.name, "\": occurs twice");
    files_.emplace_back(file.name(), file.mapping(), file.header().data_begin, std::move(entries));
  }
}

Tensor GgufTensors::tensor(std::string_view name) const {
  Tensor stored = TensorFiles::tensor(name);
  if (!norms_plus_one_.contains(std::string(name)) || stored.dtype() != DType::kF32) return stored;
  // Exact, since the stored weight was rounded after 1 was added.
  const Tensor weights = Tensor::empty({stored.shape(0)}, DType::kF32);
  for (int64_t i = 0; i < stored.shape(0); ++i) weights.as<float>()[i] = stored.as<const float>()[i] - 1.0f;
  return weights;
}

JsonNode GgufCheckpoint::config() const { return document(gguf_config(open_gguf_files(path())), path()); }

std::optional<JsonNode> GgufCheckpoint::find(CheckpointDocument kind) const {
  std::optional<Json> json;
  if (kind == CheckpointDocument::kTokenizer) json = gguf_tokenizer(GgufFile(path()));
  if (kind == CheckpointDocument::kTokenizerConfig) json = gguf_tokenizer_config(GgufFile(path()));
  if (!json) return std::nullopt;
  return document(*std::move(json), path());
}

bool GgufCheckpoint::has_tensors() const { return !GgufFile(path()).header().tensors.empty(); }

std::shared_ptr<const CheckpointTensors> GgufCheckpoint::open_tensors() const {
  return std::make_shared<GgufTensors>(path(), open_gguf_files(path()));
}

}  // namespace attend
