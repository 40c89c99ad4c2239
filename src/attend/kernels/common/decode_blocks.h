// Elements of GGUF's block formats.
#pragma once

#include <cstdint>

#include "attend/tensor/block_format.h"

namespace attend::kernels {

// Decodes `num_elements` elements, a multiple of a block, to float32. Exact.
void decode_blocks(BlockFormat format, const uint8_t* blocks, int64_t num_elements, float* to);

// Returns whether the scales of a block are finite.
bool has_finite_scales(BlockFormat format, const uint8_t* block);

}  // namespace attend::kernels
