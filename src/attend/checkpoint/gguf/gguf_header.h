// Parser of a GGUF header: metadata, and names, shapes and offsets of tensors. It is a pure function of
// bytes, so that it can be tested and fuzzed without files.
//
// File format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), little-endian: "GGUF", u32
// version, u64 number of tensors, u64 number of metadata fields; fields as key, u32 type, value; tensors as
// name, u32 rank, u64 extents (contiguous one first), u32 type, u64 offset; padding to the alignment, then
// the data. Strings are a u64 length and bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "attend/checkpoint/gguf/gguf_types.h"

namespace attend {

// Types of metadata values, with their numbers in files.
enum class GgufValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

// Array of strings or of numbers. Elements of numbers are not aligned.
struct GgufArray {
  GgufValueType type = GgufValueType::kU8;
  uint64_t size = 0;
  std::string_view bytes = {};                 // of numbers
  std::vector<std::string_view> strings = {};  // of strings
};

// Integers of at most 63 bits are int64_t; larger ones are uint64_t.
using GgufValue = std::variant<int64_t, uint64_t, double, bool, std::string_view, GgufArray>;

struct GgufField {
  std::string_view key;
  GgufValue value;
};

struct GgufTensorInfo {
  std::string_view name;
  const GgufTensorType* type = nullptr;
  std::vector<int64_t> shape = {};  // as in Hugging Face files: the contiguous extent is last
  uint64_t begin = 0, end = 0;      // bytes from the start of the data
};

// Texts are views of the parsed bytes.
struct GgufHeader {
  uint32_t version = 0;
  std::vector<GgufField> fields;        // in file order; keys are unique
  std::vector<GgufTensorInfo> tensors;  // in the order of their data; names are unique
  uint64_t data_begin = 0;              // offset of the data in the file
};

// `bytes`: start of the file; `file_bytes`: size of the file; `file`: its name in errors. Returns no value if
// the header continues after `bytes`. Throws Error(kCorruptFile) that names the field and its value unless
// every number, length and offset is inside of the file, and tensors do not overlap; Error(kUnsupported) for
// another version.
std::optional<GgufHeader> parse_gguf_header(std::string_view bytes, uint64_t file_bytes,
                                            const std::string& file);

}  // namespace attend
