#include "attend/checkpoint/gguf/gguf_types.h"

#include <algorithm>
#include <iterator>

namespace attend {
namespace {

constexpr GgufTensorType plain(uint32_t number, std::string_view name, int bytes, DType dtype) {
  return {.number = number, .name = name, .block_elements = 1, .block_bytes = bytes, .dtype = dtype};
}
constexpr GgufTensorType blocks(uint32_t number, BlockFormat format) {
  const BlockLayout layout = block_layout(format);
  return {.number = number,
          .name = layout.name,
          .block_elements = layout.elements,
          .block_bytes = layout.bytes,
          .block_format = format};
}

// ggml's enum ggml_type. Numbers that are not listed were removed from the format.
constexpr GgufTensorType kTypes[] = {plain(0, "F32", 4, DType::kF32),
                                     plain(1, "F16", 2, DType::kF16),
                                     blocks(2, BlockFormat::kQ4_0),
                                     blocks(3, BlockFormat::kQ4_1),
                                     blocks(6, BlockFormat::kQ5_0),
                                     blocks(7, BlockFormat::kQ5_1),
                                     blocks(8, BlockFormat::kQ8_0),
                                     {9, "Q8_1", 32, 36},
                                     blocks(10, BlockFormat::kQ2K),
                                     blocks(11, BlockFormat::kQ3K),
                                     blocks(12, BlockFormat::kQ4K),
                                     blocks(13, BlockFormat::kQ5K),
                                     blocks(14, BlockFormat::kQ6K),
                                     {15, "Q8_K", 256, 292},
                                     {16, "IQ2_XXS", 256, 66},
                                     {17, "IQ2_XS", 256, 74},
                                     {18, "IQ3_XXS", 256, 98},
                                     {19, "IQ1_S", 256, 50},
                                     blocks(20, BlockFormat::kIq4Nl),
                                     {21, "IQ3_S", 256, 110},
                                     {22, "IQ2_S", 256, 82},
                                     blocks(23, BlockFormat::kIq4Xs),
                                     plain(24, "I8", 1, DType::kI8),
                                     {25, "I16", 1, 2},
                                     plain(26, "I32", 4, DType::kI32),
                                     plain(27, "I64", 8, DType::kI64),
                                     {28, "F64", 1, 8},
                                     {29, "IQ1_M", 256, 56},
                                     plain(30, "BF16", 2, DType::kBF16),
                                     {34, "TQ1_0", 256, 54},
                                     {35, "TQ2_0", 256, 66},
                                     blocks(39, BlockFormat::kMxFp4),
                                     {40, "NVFP4", 64, 36},
                                     {41, "Q1_0", 128, 18}};

}  // namespace

const GgufTensorType* find_gguf_tensor_type(uint32_t number) {
  const auto* const found = std::ranges::find(kTypes, number, &GgufTensorType::number);
  return found == std::end(kTypes) ? nullptr : found;
}

std::string supported_gguf_tensor_types() {
  std::string names;
  for (const GgufTensorType& type : kTypes)
    if (type.dtype || type.block_format) names += (names.empty() ? "" : ", ") + std::string(type.name);
  return names;
}

}  // namespace attend
