// GgufArchitecture: how the metadata and the tensor names of one architecture of GGUF files translate to
// those of Hugging Face, as data.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "attend/checkpoint/gguf/gguf_file.h"
#include "attend/checkpoint/parse_json.h"

namespace attend {

// `gguf` and `hf` are names in a layer, after "blk.0." and "model.layers.0.", without ".weight" and ".bias".
// If `gguf` ends with one of these, `hf` is the full name. A tensor with all experts of a layer has a * in
// `hf`, for the number of the expert.
struct GgufTensorName {
  std::string_view gguf, hf;
};

// Metadata with the prefix of the architecture: "llama.block_count".
class GgufModelMetadata {
 public:
  explicit GgufModelMetadata(const GgufFile& file)
      : file_(file), prefix_(std::string(file.text("general.architecture")) + ".") {}

  const GgufFile& file() const { return file_; }
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  // Integers must fit 31 bits, like those of config.json.
  std::optional<int64_t> find_integer(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  std::optional<double> find_number(std::string_view name) const { return file_.find_number(key(name)); }
  std::optional<bool> find_boolean(std::string_view name) const { return file_.find_boolean(key(name)); }
  // One integer for all layers, or an array with one per layer.
  std::vector<int64_t> per_layer(std::string_view name, size_t num_layers) const;

 private:
  const GgufFile& file_;
  std::string prefix_;
};

struct GgufArchitecture {
  std::string_view name;  // general.architecture
  std::string_view hf;    // "architectures" of config.json
  // Names that differ from the common ones.
  std::span<const GgufTensorName> names = {};
  // Rows of q and k are permuted so that pairs of neighbors are rotated.
  bool interleaves_rope = false;
  // Norms contain 1 + weight; Hugging Face's files contain the weight.
  bool adds_one_to_norms = false;
  // K/V and scales in bfloat16 instead of float16 next to quantized weights: activations exceed float16.
  bool prefers_bf16 = false;
  // Adds the fields of this architecture to a config with the common ones.
  void (*add_fields)(const GgufModelMetadata& metadata, Json& config) = nullptr;
};

// Throws Error(kUnsupported) with the supported names.
const GgufArchitecture& find_gguf_architecture(const GgufFile& file);

// Returns the name of a tensor in Hugging Face's files, empty for a tensor that the config contains, and the
// GGUF name for an unknown one.
std::string hf_tensor_name(const GgufArchitecture& architecture, std::string_view gguf_name);

}  // namespace attend
