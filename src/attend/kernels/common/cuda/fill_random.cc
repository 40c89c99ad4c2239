#include "attend/kernels/common/cuda/fill_random.h"

#include "attend/kernels/common/cuda/view_params.h"

namespace attend::kernels::cuda {

void fill_random(const TensorView& out, const RandomNormal& numbers, Stream& stream) {
  launch_fill_random({.data = out.data,
                      .count = out.num_elements(),
                      .element = to_element_type(out.dtype),
                      .numbers = numbers},
                     stream.handle);
}

}  // namespace attend::kernels::cuda
