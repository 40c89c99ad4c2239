// Parser of a safetensors header, which maps tensors to offsets. It is a pure function of bytes, so that it
// can be tested and fuzzed without files.
//
// File format (https://github.com/huggingface/safetensors#format): 8 bytes little-endian header length n, n
// bytes of JSON {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...,
// "__metadata__": {string: string}}, then the data; offsets count from the start of the data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attend/checkpoint/checkpoint.h"

namespace attend {

// Limit of the format.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// Returns the entries in the order of their data. `data_bytes`: bytes after the header in the file; `file`:
// name of the file in errors. Throws Error(kCorruptFile) that names the tensor unless the header is
// well-formed, every dtype is one of the format's, every shape and dtype match the number of bytes, and the
// tensors cover the data exactly without overlap.
std::vector<TensorEntry> parse_safetensors_header(std::string_view header, uint64_t data_bytes,
                                                  const std::string& file);

}  // namespace attend
