#include "attend/bench/model/kernel_inputs.h"

#include <iterator>

#include "attend/kernels/common/fill_random.h"
#include "attend/tensor/cuda.h"

namespace attend::bench {

Tensor random_input(std::initializer_list<int64_t> shape, DType dtype, float deviation, Stream& stream) {
  Tensor tensor = cuda::empty(shape, dtype, stream.device);
  kernels::fill_random(tensor, {.deviation = deviation}, stream);
  return tensor;
}

Tensor upload_input(const std::vector<int32_t>& values, Device device) {
  return cuda::copy_to(
      TensorView::contiguous(const_cast<int32_t*>(values.data()), DType::kI32, {std::ssize(values)}), device);
}

}  // namespace attend::bench
