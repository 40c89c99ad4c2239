// Tensor views as the plain structs that cross to the device.
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels::cuda {

// Of a float dtype.
Element element_of(DType dtype);

// Views of [num_tokens, num_heads, head_dim].
TokenRows token_rows(const TensorView& view);
OutRows out_rows(const TensorView& view);
// A view of [num_pages, page_size, num_kv_heads, head_dim].
PagedRows paged_rows(const TensorView& view);

// Throws Error(kInvalidArgument) unless the view, if given, lies on the stream's device.
void require_on_device(std::string_view name, const TensorView& view, const Stream& stream);

}  // namespace attend::kernels::cuda
