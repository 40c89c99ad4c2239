#include "attend/kernels/common/cuda/view_params.h"

namespace attend::kernels::cuda {

Element element_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Element::kF32;
    case DType::kF16:
      return Element::kF16;
    case DType::kBF16:
      return Element::kBF16;
    case DType::kF8E4M3:
      return Element::kF8E4M3;
    case DType::kF8E5M2:
      return Element::kF8E5M2;
    default:
      fail(ErrorCode::kInternal, "no element of a kernel has dtype ", dtype);
  }
}

TokenRows token_rows(const TensorView& view) { return {view.data, view.strides[0], view.strides[1]}; }
OutRows out_rows(const TensorView& view) { return {view.data, view.strides[0], view.strides[1]}; }
PagedRows paged_rows(const TensorView& view) {
  return {view.data, view.strides[0], view.strides[1], view.strides[2]};
}

void require_on_device(std::string_view name, const TensorView& view, const Stream& stream) {
  require(view.empty() || view.device == stream.device, name, " ", view, ": expected on ", stream.device);
}

}  // namespace attend::kernels::cuda
