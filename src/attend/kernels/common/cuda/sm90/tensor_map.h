// Tensor maps for TMA (CUDA driver API, "Tensor Map Object Management").
#pragma once

#include <cuda.h>

#include "attend/tensor/tensor.h"

namespace attend::kernels::cuda::sm90 {

// Returns true if a view of rows can have a map: sizes and strides of its dimensions are above 0.
bool has_tensor_map(const TensorView& view);

// Boxes of 128 bytes of a row by `box_rows` rows of a matrix of 16-bit elements or fp8, with 128-byte
// swizzle. Rows start at multiples of 16 bytes.
CUtensorMap map_rows(const TensorView& matrix, int box_rows);

// Map of contiguous weights in pairs of eight rows and their partners. If `gated`: rows 8 p to 8 p + 7 of the
// upper half (gate) and of the lower half (up); otherwise rows 16 p to 16 p + 15. Boxes have `box_pairs`
// pairs.
CUtensorMap map_row_pairs(const TensorView& weight, bool gated, int box_pairs);

// Boxes of 128 bytes of a row by `box_slots` slots of `box_pages` pages, of one head, of [num_pages,
// page_size, num_heads, head_dim] of 16-bit elements or fp8, with 128-byte swizzle. Elements of a box past
// the end of a row are zeros. Coordinates: column, head, slot, page.
CUtensorMap map_pages(const TensorView& pages, int box_slots, int box_pages);

// Boxes of 128 bytes of a row by `box_heads` heads of `box_tokens` tokens, of [num_tokens, num_heads,
// head_dim]. Coordinates: column, head, token.
CUtensorMap map_tokens(const TensorView& tokens, int box_heads, int box_tokens);

}  // namespace attend::kernels::cuda::sm90
