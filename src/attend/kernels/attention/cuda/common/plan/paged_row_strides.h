// Strides of rows of paged K or V in 32 bits, for kernels that copy rows individually.
#pragma once

#include <cstdint>
#include <string_view>

#include "attend/tensor/tensor.h"

namespace attend::kernels::cuda {

// Rows of a head: row `slot` of page `page` starts (page * page_units + slot * slot_units) * unit_bytes after
// slot 0 of page 0.
struct PagedRowStrides {
  int32_t page_units, slot_units, unit_bytes;
};

// `pages`: [num_pages, page_size, heads, head_dim] with rows at multiples of 16 bytes and strides below 2^31
// elements. Throws Error(kInvalidArgument) if 32 bits are not enough: a unit is the largest common divisor of
// both strides, and the last row may be at most 2^31 - 1 units after the first.
PagedRowStrides paged_row_strides(std::string_view name, const TensorView& pages);

}  // namespace attend::kernels::cuda
