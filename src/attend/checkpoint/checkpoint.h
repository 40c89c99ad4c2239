// Checkpoint: a published model, whatever files it comes in: its config, its tokenizer and its tensors.
//
// Configs, tokenizers and tensor names have the form in which Hugging Face publishes them. A reader of
// another format translates into it, so that nothing above this floor knows the format. hf/ is the first
// implementation; open_checkpoint() is where another one is added.
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

#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

class JsonNode;

// Progress of loading: bytes done and total bytes.
using LoadProgress = std::function<void(size_t done, size_t total)>;

// Type, shape and place of a tensor, known without reading its data.
struct TensorEntry {
  std::string name;
  std::string dtype_name;      // as the file has it: "BF16"
  std::optional<DType> dtype;  // none: a type of the format that attend does not have
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes from the start of the file's data

  uint64_t num_bytes() const { return end - begin; }
};

// The tensors of a checkpoint, opened and mapped. Thread-safe after construction. Every function with a
// `name` throws Error(kNotFound) with the checkpoint's path when there is no such tensor.
class CheckpointTensors {
 public:
  explicit CheckpointTensors(std::filesystem::path path) : path_(std::move(path)) {}
  virtual ~CheckpointTensors() = default;
  CheckpointTensors(const CheckpointTensors&) = delete;

  const std::filesystem::path& path() const { return path_; }
  virtual bool contains(std::string_view name) const = 0;
  // Names of all tensors, in no order.
  virtual std::vector<std::string> names() const = 0;
  virtual const TensorEntry& entry(std::string_view name) const = 0;
  // A read-only view that keeps the mapping alive; a copy when the data is not aligned to its dtype. Throws
  // Error(kUnsupported) for a dtype or rank that attend does not have.
  virtual Tensor tensor(std::string_view name) const = 0;
  // A copy of a tensor's bytes, read without the mapping, whose pages may be huge: for small tensors among
  // large ones. Shorter when the file has been cut short.
  virtual std::string read(std::string_view name) const = 0;
  // File and name of a tensor, for messages.
  virtual std::string where(std::string_view name) const = 0;
  // Reads the pages of bytes [begin, end) of a tensor's data, at most entry().num_bytes(), into memory and
  // reports the bytes of each step. A rank fetches the ranges of its part only. Throws Error(kCorruptFile)
  // when the file was written to or cut short since it was opened.
  virtual void fetch(std::string_view name, uint64_t begin, uint64_t end,
                     const std::function<void(size_t bytes)>& fetched) const = 0;
  // Reads the pages of all tensors into memory until `stop` is set. Does not throw: it ends where a file was
  // cut short, and fetch() reports that.
  virtual void prefetch_all(const std::atomic<bool>& stop) const = 0;
  // Throws Error(kCorruptFile) with a file that was written to since it was opened.
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
};

// Above any chat template that was published.
inline constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

// A text and the file it comes from, for messages.
struct CheckpointText {
  std::string where;
  std::string text;
};

// Holds nothing open: every call reads the files anew.
class Checkpoint {
 public:
  explicit Checkpoint(std::filesystem::path path) : path_(std::move(path)) {}
  virtual ~Checkpoint() = default;
  Checkpoint(const Checkpoint&) = delete;

  // The directory or file that was opened.
  const std::filesystem::path& path() const { return path_; }
  // config.json. Throws Error(kNotFound) when there is none, with what would be accepted.
  virtual JsonNode config() const = 0;
  // None: the checkpoint does not have this document. Throws Error(kCorruptFile) when it is malformed, and
  // Error(kNotFound) when it can't be read.
  virtual std::optional<JsonNode> find(CheckpointDocument document) const = 0;
  // A chat template that is a document of its own (chat_template.jinja); tokenizer_config.json may have
  // others. Throws Error(kUnsupported) above kMaxTemplateBytes.
  virtual std::optional<CheckpointText> chat_template() const = 0;
  virtual bool has_tensors() const = 0;
  // Opens and maps the files with the tensors and checks their headers. Throws Error(kNotFound) when one is
  // missing, Error(kCorruptFile) when one is malformed.
  virtual std::shared_ptr<const CheckpointTensors> open_tensors() const = 0;

 private:
  std::filesystem::path path_;
};

// The checkpoint at `path`, of the format that is there: a Hugging Face model directory. Reads nothing yet: a
// path without a checkpoint is reported by the call that reads it.
std::unique_ptr<Checkpoint> open_checkpoint(const std::filesystem::path& path);

}  // namespace attend
#pragma GCC visibility pop
