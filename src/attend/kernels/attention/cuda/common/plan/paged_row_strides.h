// Where rows of paged K or V lie, as kernels that copy them one by one are told it.
#pragma once

#include <cstdint>
#include <string_view>

#include "attend/tensor/tensor.h"

namespace attend::kernels::cuda {

// The rows of a head, in 32 bits: row `slot` of page `page` begins (page page_units + slot slot_units)
// unit_bytes behind that of slot 0 of page 0.
struct PagedRowStrides {
  int32_t page_units, slot_units, unit_bytes;
};

// `pages`: [num_pages, page_size, heads, head_dim], whose rows begin at multiples of 16 bytes and whose
// strides are below 2^31 elements. Throws Error(kInvalidArgument) where 32 bits do not say it: a unit is the
// largest of which both strides are multiples, and the last row may lie 2^31 - 1 of them from the first.
PagedRowStrides paged_row_strides(std::string_view name, const TensorView& pages);

}  // namespace attend::kernels::cuda
