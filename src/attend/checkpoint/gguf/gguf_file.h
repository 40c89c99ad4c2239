// GgufFile: header of a GGUF file, with typed access to its metadata.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/checkpoint/file_mapping.h"
#include "attend/checkpoint/gguf/gguf_header.h"

namespace attend {

// Metadata accessors throw Error(kCorruptFile) with key, value and what is expected.
class GgufFile {
 public:
  // Maps the file and parses its header. Throws Error(kNotFound) if it cannot be read, and the errors of
  // parse_gguf_header().
  explicit GgufFile(const std::filesystem::path& path);
  // Same for bytes in memory: no mapping.
  GgufFile(std::string bytes, std::string name);
  GgufFile(GgufFile&&) = default;

  const std::string& name() const { return name_; }
  const GgufHeader& header() const { return header_; }
  const std::shared_ptr<FileMapping>& mapping() const { return mapping_; }

  // Returns null if there is no such field.
  const GgufValue* find(std::string_view key) const;
  std::optional<std::string_view> find_text(std::string_view key) const;
  std::optional<int64_t> find_integer(std::string_view key) const;
  std::optional<double> find_number(std::string_view key) const;
  std::optional<bool> find_boolean(std::string_view key) const;
  // Arrays, converted to doubles or integers.
  std::optional<std::vector<double>> find_numbers(std::string_view key) const;
  std::optional<std::vector<int64_t>> find_integers(std::string_view key) const;
  const std::vector<std::string_view>* find_texts(std::string_view key) const;
  std::string_view text(std::string_view key) const;
  // Rejects a field; `expected` ends the message.
  [[noreturn]] void reject(std::string_view key, std::string_view expected) const;

  const GgufTensorInfo* find_tensor(std::string_view name) const;
  // Elements of a float32 tensor, read without the mapping.
  std::vector<double> read_numbers(const GgufTensorInfo& tensor) const;

 private:
  std::string name_;
  std::shared_ptr<FileMapping> mapping_;
  std::shared_ptr<const std::string> bytes_;  // viewed by the header
  GgufHeader header_;
};

// Returns the files of a model: the file itself, or all parts of a split file, of which `path` is the first.
// Throws Error(kNotFound) for a missing part, and Error(kCorruptFile) for parts that do not belong together.
std::vector<GgufFile> open_gguf_files(const std::filesystem::path& path);

}  // namespace attend
