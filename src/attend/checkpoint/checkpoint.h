// Checkpoint: config, tokenizer and tensors of a published model, independent of the file format.
//
// Configs, tokenizers and tensor names have Hugging Face's form. A reader of another format converts to it,
// so that floors above do not depend on the format. Readers are hf/ and gguf/.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attend/tensor/block_format.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

class JsonNode;

// Progress of loading: bytes done and total bytes.
using LoadProgress = std::function<void(size_t done, size_t total)>;

// Type, shape and location of a tensor, known without reading its data.
struct TensorEntry {
  std::string name;
  std::string dtype_name;      // as in the file: "BF16"
  std::optional<DType> dtype;  // none: attend does not support the file's dtype
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes from the start of the file's data
  // Blocks of quantized values: dtype is uint8, and shape ends with blocks per row and bytes per block.
  std::optional<BlockFormat> block_format = std::nullopt;

  uint64_t num_bytes() const { return end - begin; }
};

// Opened and mapped tensors of a checkpoint. Thread-safe after construction. Every function with a `name`
// throws Error(kNotFound) with the checkpoint's path if there is no such tensor.
class CheckpointTensors {
 public:
  explicit CheckpointTensors(std::filesystem::path path) : path_(std::move(path)) {}
  virtual ~CheckpointTensors() = default;
  CheckpointTensors(const CheckpointTensors&) = delete;

  const std::filesystem::path& path() const { return path_; }
  virtual bool contains(std::string_view name) const = 0;
  // Names of all tensors, in arbitrary order.
  virtual std::vector<std::string> names() const = 0;
  virtual const TensorEntry& entry(std::string_view name) const = 0;
  // Returns a read-only view that keeps the mapping alive, or a copy if the data is not aligned to its dtype.
  // Throws Error(kUnsupported) for an unsupported dtype or rank.
  virtual Tensor tensor(std::string_view name) const = 0;
  // Returns a copy of a tensor's bytes, read without the mapping (its pages may be huge): for small tensors
  // between large ones. Shorter if the file was truncated.
  virtual std::string read(std::string_view name) const = 0;
  // File and name of a tensor, for messages.
  virtual std::string where(std::string_view name) const = 0;
  // Reads the pages of bytes [begin, end) of a tensor's data, at most entry().num_bytes(), into memory and
  // reports the bytes of each part. A rank fetches only the ranges of its shard. Throws Error(kCorruptFile)
  // if the file was modified or truncated since it was opened.
  virtual void fetch(std::string_view name, uint64_t begin, uint64_t end,
                     const std::function<void(size_t bytes)>& fetched) const = 0;
  // Reads the pages of all tensors into memory until `stop` is set. Does not throw: it stops at a truncation,
  // which fetch() reports.
  virtual void prefetch_all(const std::atomic<bool>& stop) const = 0;
  // Throws Error(kCorruptFile) naming a file that was modified since it was opened.
  virtual void check_unchanged() const = 0;

 private:
  std::filesystem::path path_;
};

// JSON documents that a checkpoint may have next to its config.
enum class CheckpointDocument : uint8_t {
  kQuantization,      // hf_quant_config.json: how ModelOpt quantized the weights
  kGenerationConfig,  // generation_config.json
  kTokenizer,         // tokenizer.json
  kTokenizerConfig,   // tokenizer_config.json
  kSpecialTokens,     // special_tokens_map.json
  kPreprocessor,      // preprocessor_config.json: how images are prepared
  kProcessor,         // processor_config.json: the same for several kinds of input
};

// Larger than any published chat template.
inline constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

// Text and the path of its file, for messages.
struct CheckpointText {
  std::string where;
  std::string text;
};

// Holds no open files: each call reads them again.
class Checkpoint {
 public:
  explicit Checkpoint(std::filesystem::path path) : path_(std::move(path)) {}
  virtual ~Checkpoint() = default;
  Checkpoint(const Checkpoint&) = delete;

  // Directory or file that was opened.
  const std::filesystem::path& path() const { return path_; }
  // config.json. Throws Error(kNotFound) if there is none, with accepted paths.
  virtual JsonNode config() const = 0;
  // Returns nothing if the checkpoint does not have this document. Throws Error(kCorruptFile) if it is
  // malformed, and Error(kNotFound) if it cannot be read.
  virtual std::optional<JsonNode> find(CheckpointDocument document) const = 0;
  // Chat template in a separate file (chat_template.jinja); tokenizer_config.json may contain others. Throws
  // Error(kUnsupported) above kMaxTemplateBytes.
  virtual std::optional<CheckpointText> chat_template() const = 0;
  virtual bool has_tensors() const = 0;
  // Opens and maps the files with the tensors and checks their headers. Throws Error(kNotFound) if one is
  // missing, Error(kCorruptFile) if one is malformed.
  virtual std::shared_ptr<const CheckpointTensors> open_tensors() const = 0;

 private:
  std::filesystem::path path_;
};

// Returns the path of a model: `name` if it exists or is a path, otherwise the folder of ORG/MODEL (revision
// main) in the Hugging Face cache, which HF_HUB_CACHE or HF_HOME sets. Downloads nothing. Throws
// Error(kNotFound) if neither exists.
std::filesystem::path find_model(const std::string& name);

// Extension of the names of GGUF files.
inline constexpr std::string_view kGgufExtension = ".gguf";

// Returns the checkpoint at `path`: a GGUF file if it ends in .gguf, otherwise a Hugging Face model
// directory. Reads nothing: a path without a checkpoint is reported by the first call that reads.
std::unique_ptr<Checkpoint> open_checkpoint(const std::filesystem::path& path);

}  // namespace attend
#pragma GCC visibility pop
