#include "attend/kernels/attention/cuda/common/plan/paged_row_strides.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "attend/base/error.h"

namespace attend::kernels::cuda {

PagedRowStrides paged_row_strides(std::string_view name, const TensorView& pages) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max(), kRowAlignment = 16;
  int64_t strides_bytes[2];
  for (size_t dim = 0; dim < 2; ++dim)
    strides_bytes[dim] =
        pages.shape[dim] > 1 ? pages.strides[dim] * static_cast<int64_t>(size_of(pages.dtype)) : 0;
  // Also covers one row, or none.
  int64_t unit_bytes = std::max(std::gcd(strides_bytes[0], strides_bytes[1]), kRowAlignment);
  // A multiple of 16 that exceeds the limit by few enough bits to be halved exactly.
  while (unit_bytes > kMost) unit_bytes /= 2;
  int64_t most = 0;
  for (size_t dim = 0; dim < 2; ++dim)
    most += std::abs(strides_bytes[dim]) / unit_bytes * std::max<int64_t>(pages.shape[dim] - 1, 0);
  require(most <= kMost, name, ": ", pages, ": rows of a head start at multiples of ", unit_bytes,
          " bytes; expected fewer than 2^31 such units (prefill by rows)");
  return {static_cast<int32_t>(strides_bytes[0] / unit_bytes),
          static_cast<int32_t>(strides_bytes[1] / unit_bytes), static_cast<int32_t>(unit_bytes)};
}

}  // namespace attend::kernels::cuda
