// Types of tensors in GGUF files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "attend/tensor/block_format.h"
#include "attend/tensor/dtype.h"

namespace attend {

struct GgufTensorType {
  uint32_t number;  // in files
  std::string_view name;
  int block_elements, block_bytes;
  // Elements or blocks that attend supports; without both, the type is known but not supported.
  std::optional<DType> dtype = std::nullopt;
  std::optional<BlockFormat> block_format = std::nullopt;
};

// Returns null for a number that is not a type of the format.
const GgufTensorType* find_gguf_tensor_type(uint32_t number);
// Lists the names of the supported types.
std::string supported_gguf_tensor_types();

}  // namespace attend
