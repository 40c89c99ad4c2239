#include "attend/kernels/common/fill_random.h"

#include <algorithm>

#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/cuda/fill_random.h"
#include "attend/kernels/common/on_gpu.h"

namespace attend::kernels {
namespace {

constexpr int64_t kRunElements = 1 << 16;  // per task

}  // namespace

void fill_random(const TensorView& out, const RandomNormal& numbers, Stream& stream) {
  require_weight("out", out);
  require_on(stream, "out", out);
  if (const OnGpu gpu(stream); gpu) return cuda::fill_random(out, numbers, stream);
  const int64_t count = out.num_elements();
  visit_float_dtype(out.dtype, [&]<class T>(TypeTag<T>) {
    T* const elements = out.as<T>();
    parallel_for(ceil_div(count, kRunElements), [&](int64_t run, int) {
      const int64_t end = std::min(count, (run + 1) * kRunElements);
      for (int64_t i = run * kRunElements; i < end; ++i) elements[i] = T(numbers.at(i));
    });
  });
}

}  // namespace attend::kernels
