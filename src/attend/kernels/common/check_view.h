// Checks of single tensors and devices at kernel entries. Each error names the argument, its value and what
// is accepted.
#pragma once

#include <initializer_list>
#include <string_view>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels {

// Requires a non-empty view of this rank.
void require_rank(std::string_view name, const TensorView& view, int rank);
void require_shape(std::string_view name, const TensorView& view, std::initializer_list<int64_t> shape);
// Requires stride 1 in the last dimension, since kernels read its rows as contiguous memory. Throws
// Error(kUnsupported).
void require_unit_stride(std::string_view name, const TensorView& view);
void require_dtype(std::string_view name, const TensorView& view, DType dtype);
// Requires f32, f16 or bf16, and last stride 1.
void require_activation(std::string_view name, const TensorView& view);
// Requires a view on the stream's device.
void require_on(const Stream& stream, std::string_view name, const TensorView& view);
// Requires a view on the stream's device with last stride 1, in the activation dtype of that device: f32 on
// the CPU; f32, f16 or bf16 on a GPU. Throws Error(kUnsupported) for another dtype on the CPU.
void require_activation_on(const Stream& stream, std::string_view name, const TensorView& view);
// Requires any float dtype, and last stride 1.
void require_cache(std::string_view name, const TensorView& view);
// Requires f32, f16 or bf16, contiguous.
void require_weight(std::string_view name, const TensorView& view);

// Checks the scale of stored values, which are x / scale: it must be above 0.
void require_scale(std::string_view name, float scale);

}  // namespace attend::kernels
