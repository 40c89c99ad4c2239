#include "attention/descale.h"

#include <algorithm>

#include "tensors/arguments.h"

namespace attend::python {
namespace {

bool all_equal_on_host(const TensorView& tensor) {
  if (tensor.device.type != DeviceType::kCpu || tensor.num_elements() == 0 || !tensor.is_contiguous())
    return false;
  const View<const float> values = tensor.span<const float>();
  return std::all_of(values.begin(), values.end(), [&](float value) { return value == values[0]; });
}

}  // namespace

Descale::Descale(std::string_view name, nb::handle value) : name_(name) {
  if (value.is_none()) return;
  if (!nb::hasattr(value, "__dlpack__") && PyNumber_Check(value.ptr()) != 0) {
    number_ = positive_number(name, value);
    return;
  }
  tensor_ = TensorArgument(name, value, Accepts::kFloat32);
  given_ = *tensor_;
  if (!all_equal_on_host(*tensor_)) return;
  number_ = positive(name, *static_cast<const float*>(tensor_->data));
  tensor_ = {};
}

void Descale::require_shape(int64_t num_reqs, int64_t num_kv_heads) const {
  if (!given_.has_value() || given_->num_elements() == 1) return;
  require(given_->rank == 2 && given_->shape[0] == num_reqs && given_->shape[1] == num_kv_heads, name_, " ",
          *given_, ": expected a number, one element, or float32 [", num_reqs, ", ", num_kv_heads,
          "], one descale per request and K/V head");
}

kernels::RowScale Descale::rows(int64_t heads_per_scale, Device device) const {
  if (!is_tensor()) return {};
  require_same_device(name_, *tensor_, device);
  const auto* const data = static_cast<const float*>(tensor_->data);
  if (tensor_->num_elements() == 1) return {.data = data};
  return {.data = data,
          .request_stride = tensor_->strides[0],
          .head_stride = tensor_->strides[1],
          .heads_per_scale = static_cast<int32_t>(heads_per_scale)};
}

}  // namespace attend::python
