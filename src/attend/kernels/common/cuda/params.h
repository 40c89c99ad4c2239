// Tensors as kernel parameters: plain structs. Strides count elements.
#pragma once

#include <cstdint>

namespace attend::kernels::cuda {

// Element types in device code.
enum class Element : uint8_t { kF32, kF16, kBF16, kF8E4M3, kF8E5M2 };
constexpr bool is_fp8(Element element) { return element == Element::kF8E4M3 || element == Element::kF8E5M2; }

// Rows of new tokens: [num_tokens, num_heads, head_dim].
struct TokenRows {
  const void* data;
  int64_t token_stride, head_stride;
};
struct OutRows {
  void* data;
  int64_t token_stride, head_stride;
};
// Paged cache: [num_pages, page_size, num_kv_heads, head_dim].
struct PagedRows {
  const void* data;
  int64_t page_stride, token_stride, head_stride;
};

// Rows of elements. Row r starts at element r / inner * outer_stride + r % inner * inner_stride.
struct DeviceRows {
  void* data;  // null: none
  int64_t outer_stride, inner_stride;
  int32_t inner;
  Element element;
};

// Vector of weights.
struct DeviceVector {
  const void* data;  // null: none
  Element element;
};

}  // namespace attend::kernels::cuda
