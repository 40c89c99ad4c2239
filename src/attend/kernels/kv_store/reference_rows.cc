#include "attend/kernels/kv_store/reference_rows.h"

#include <algorithm>
#include <cmath>

#include "attend/kernels/common/element.h"
#include "attend/kernels/kv_store/selected_rows.h"

namespace attend::kernels::reference {
namespace {

// Views of the parts of a scaled row.
struct RowParts {
  TensorView values, descales, rope;

  RowParts(const TensorView& cache, int64_t offset) {
    char* const row = static_cast<char*>(cache.data) + offset;
    values = TensorView::contiguous(row, DType::kF8E4M3, {kScaledRow.rank});
    descales = TensorView::contiguous(row + kScaledRow.scales_at, DType::kF32,
                                      {kScaledRow.rank / kScaledRow.values_per_scale});
    rope = TensorView::contiguous(row + kScaledRow.rope_at, DType::kBF16, {kScaledRow.rope_dim});
  }
};

}  // namespace

std::vector<double> load_latent(const TensorView& cache, int64_t offset, int64_t first, int64_t count) {
  if (!has_scaled_rows(cache)) return load_row(cache, offset + first, count);
  const RowParts row(cache, offset);
  std::vector<double> values;
  for (int64_t d = first; d < first + count; ++d)
    values.push_back(d < kScaledRow.rank
                         ? load(row.values, d) * load(row.descales, d / kScaledRow.values_per_scale)
                         : load(row.rope, d - kScaledRow.rank));
  return values;
}

void store_scaled_row(const TensorView& cache, int64_t offset, const std::vector<double>& values) {
  constexpr double kLargestE4M3 = 448.0, kLeast = 1e-4;
  const RowParts row(cache, offset);
  for (int64_t first = 0; first < kScaledRow.rank; first += kScaledRow.values_per_scale) {
    double largest = 0.0;
    for (int64_t d = first; d < first + kScaledRow.values_per_scale; ++d)
      largest = std::fmax(largest, std::fabs(values[static_cast<size_t>(d)]));
    const double descale = std::exp2(std::ceil(std::log2(std::max(largest / kLargestE4M3, kLeast))));
    store(row.descales, first / kScaledRow.values_per_scale, descale);
    for (int64_t d = first; d < first + kScaledRow.values_per_scale; ++d)
      store(row.values, d, values[static_cast<size_t>(d)] / descale);
  }
  for (int64_t d = 0; d < kScaledRow.rope_dim; ++d)
    store(row.rope, d, values[static_cast<size_t>(kScaledRow.rank + d)]);
}

}  // namespace attend::kernels::reference
