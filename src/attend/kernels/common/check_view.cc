#include "attend/kernels/common/check_view.h"

#include "attend/base/error.h"

namespace attend::kernels {

void require_rank(std::string_view name, const TensorView& view, int rank) {
  require(!view.empty(), name, ": not given");
  require(view.rank == rank, name, " ", view, ": expected ", rank, " dimensions");
}

void require_shape(std::string_view name, const TensorView& view, std::initializer_list<int64_t> shape) {
  require_rank(name, view, static_cast<int>(shape.size()));
  size_t dim = 0;
  for (int64_t extent : shape) {
    require(view.shape[dim] == extent, name, " ", view, ": expected ", extent, " in dimension ", dim);
    ++dim;
  }
}

void require_unit_stride(std::string_view name, const TensorView& view) {
  const auto last = static_cast<size_t>(view.rank) - 1;
  if (view.strides[last] != 1 && view.shape[last] != 1)
    fail(ErrorCode::kUnsupported, name, " ", view, ": stride ", view.strides[last],
         " in the last dimension, expected 1");
}

void require_activation(std::string_view name, const TensorView& view) {
  require(view.dtype == DType::kF32 || view.dtype == DType::kF16 || view.dtype == DType::kBF16, name, " ",
          view, ": expected float32, float16 or bfloat16");
  require_unit_stride(name, view);
}

void require_cache(std::string_view name, const TensorView& view) {
  require(is_float(view.dtype), name, " ", view,
          ": expected float32, float16, bfloat16, fp8_e4m3 or fp8_e5m2");
  require_unit_stride(name, view);
}

void require_dtype(std::string_view name, const TensorView& view, DType dtype) {
  require(view.dtype == dtype, name, " ", view, ": expected ", dtype);
}

void require_weight(std::string_view name, const TensorView& view) {
  require(view.dtype == DType::kF32 || view.dtype == DType::kF16 || view.dtype == DType::kBF16, name, " ",
          view, ": expected float32, float16 or bfloat16");
  require(view.is_contiguous(), name, " ", view, ": expected a contiguous tensor");
}

void require_on(const Stream& stream, std::string_view name, const TensorView& view) {
  require(view.device == stream.device, name, " ", view, ": expected on ", stream.device);
}

void require_activation_on(const Stream& stream, std::string_view name, const TensorView& view) {
  if (stream.device.type == DeviceType::kCpu && view.dtype != DType::kF32)
    fail(ErrorCode::kUnsupported, name, " ", view, ": activations are float32 on the CPU");
  require_activation(name, view);
  require_on(stream, name, view);
}

void require_scale(std::string_view name, float scale) {
  require(scale > 0.0f, name, " ", scale, ": above 0");
}

}  // namespace attend::kernels
