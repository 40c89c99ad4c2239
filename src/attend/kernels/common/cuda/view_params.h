// Conversion of tensor views to kernel parameters.
#pragma once

#include <initializer_list>

#include "attend/kernels/common/cuda/params.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels::cuda {

// `dtype` must be a float dtype.
Element to_element_type(DType dtype);

// Convert views of [num_tokens, num_heads, head_dim].
TokenRows token_rows(const TensorView& view);
OutRows out_rows(const TensorView& view);
// Converts a view of [num_pages, page_size, num_kv_heads, head_dim].
PagedRows paged_rows(const TensorView& view);

// Throws Error(kInvalidArgument) unless the view, if not empty, is on the stream's device.
void require_on_device(std::string_view name, const TensorView& view, const Stream& stream);

// Tensor views as rows and vectors for small kernels.

// Converts a view of two or three dimensions, the last one a row; an empty view has no data.
DeviceRows device_rows(const TensorView& view);
DeviceVector device_vector(const TensorView& view);

// Returns true if every row of these views starts at a multiple of 16 bytes, so that groups of eight elements
// can be read with one access.
bool rows_aligned(std::initializer_list<const TensorView*> views);
// Returns true if these views start at multiples of 4 bytes or are empty, so that they can be copied in
// words.
bool words_aligned(std::initializer_list<const TensorView*> views);

}  // namespace attend::kernels::cuda
