#include "attend/kernels/common/cuda/view_params.h"

#include <algorithm>

namespace attend::kernels::cuda {

Element to_element_type(DType dtype) {
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
      fail(ErrorCode::kInternal, "kernels do not support dtype ", dtype);
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

namespace {

constexpr int64_t kAccessBytes = 16;

bool aligned(const TensorView& view) {
  const auto element_bytes = static_cast<int64_t>(size_of(view.dtype));
  if (reinterpret_cast<uintptr_t>(view.data) % kAccessBytes != 0) return false;
  for (int dim = 0; dim + 1 < view.rank; ++dim) {
    const auto d = static_cast<size_t>(dim);
    if (view.shape[d] > 1 && view.strides[d] * element_bytes % kAccessBytes != 0) return false;
  }
  return true;
}

}  // namespace

DeviceRows device_rows(const TensorView& view) {
  if (view.empty()) return {.data = nullptr, .outer_stride = 0, .inner_stride = 0, .inner = 1, .element = {}};
  const bool nested = view.rank == 3;
  return {.data = view.data,
          .outer_stride = view.strides[0],
          .inner_stride = nested ? view.strides[1] : 0,
          .inner = nested ? static_cast<int32_t>(std::max<int64_t>(1, view.shape[1])) : 1,
          .element = to_element_type(view.dtype)};
}

DeviceVector device_vector(const TensorView& view) {
  if (view.empty()) return {.data = nullptr, .element = {}};
  return {.data = view.data, .element = to_element_type(view.dtype)};
}

bool rows_aligned(std::initializer_list<const TensorView*> views) {
  return std::all_of(views.begin(), views.end(),
                     [](const TensorView* view) { return view->empty() || aligned(*view); });
}

bool words_aligned(std::initializer_list<const TensorView*> views) {
  constexpr uintptr_t kWordBytes = 4;
  return std::all_of(views.begin(), views.end(), [](const TensorView* view) {
    return reinterpret_cast<uintptr_t>(view->data) % kWordBytes == 0;
  });
}

}  // namespace attend::kernels::cuda
