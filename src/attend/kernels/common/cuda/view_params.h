// Tensor views as the plain structs that cross to the device.
#pragma once

#include <initializer_list>

#include "attend/kernels/common/cuda/params.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels::cuda {

// Of a float dtype.
Element to_element_type(DType dtype);

// Views of [num_tokens, num_heads, head_dim].
TokenRows token_rows(const TensorView& view);
OutRows out_rows(const TensorView& view);
// A view of [num_pages, page_size, num_kv_heads, head_dim].
PagedRows paged_rows(const TensorView& view);

// Throws Error(kInvalidArgument) unless the view, if given, lies on the stream's device.
void require_on_device(std::string_view name, const TensorView& view, const Stream& stream);

// Tensor views as the rows and vectors that the small kernels take.

// A view of two or three dimensions, the last one a row; empty: no data.
DeviceRows device_rows(const TensorView& view);
DeviceVector device_vector(const TensorView& view);

// Whether every row of these views begins at a multiple of 16 bytes, so that groups of eight elements can be
// read at once.
bool rows_aligned(std::initializer_list<const TensorView*> views);
// Whether these begin at a multiple of 4 bytes, so that they can be copied by words; empty ones do.
bool words_aligned(std::initializer_list<const TensorView*> views);

}  // namespace attend::kernels::cuda
