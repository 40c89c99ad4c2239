// What kernel entries check about one tensor, and where they run. Each names the thing, what it is and what
// it should be.
#pragma once

#include <initializer_list>
#include <string_view>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels {

// Given, and of this rank.
void require_rank(std::string_view name, const TensorView& view, int rank);
void require_shape(std::string_view name, const TensorView& view, std::initializer_list<int64_t> shape);
// Kernels read rows of the last dimension as one run. Throws Error(kUnsupported).
void require_unit_stride(std::string_view name, const TensorView& view);
void require_dtype(std::string_view name, const TensorView& view, DType dtype);
// f32, f16 or bf16, last stride 1.
void require_activation(std::string_view name, const TensorView& view);
// On the stream's device.
void require_on(const Stream& stream, std::string_view name, const TensorView& view);
// On the stream's device, last stride 1, and what the model's layers between attention take there: f32 on the
// CPU, f32, f16 or bf16 on a GPU. Throws Error(kUnsupported) for another dtype on the CPU.
void require_activation_of(const Stream& stream, std::string_view name, const TensorView& view);
// Any float dtype, last stride 1.
void require_cache(std::string_view name, const TensorView& view);
// f32, f16 or bf16, contiguous.
void require_weight(std::string_view name, const TensorView& view);

// Of what is stored: x / scale.
void require_scale(std::string_view name, float scale);

}  // namespace attend::kernels
