#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "attend/kernels/kv_store/cpu/store.h"
#include "attend/kernels/kv_store/scaled_row_descale.h"
#include "attend/kernels/kv_store/selected_rows.h"

namespace attend::kernels::cpu {
namespace {

constexpr int kGroup = kScaledRow.values_per_scale;
using Group = std::array<float, kGroup>;
static_assert(kScaledRow.rope_dim <= kGroup);

}  // namespace

void write_scaled_row(const RowKernels& kernels, const float* values, std::byte* row) {
  std::byte* scales = row + kScaledRow.scales_at;
  for (int first = 0; first < kScaledRow.rank; first += kGroup, scales += sizeof(float)) {
    float largest = 0.0f;
    for (int i = 0; i < kGroup; ++i) largest = std::fmax(largest, std::fabs(values[first + i]));
    const float descale = scaled_row_descale(largest);
    std::memcpy(scales, &descale, sizeof descale);
    kernels.store(values + first, DType::kF32, row + first, DType::kF8E4M3, descale, kGroup);
  }
  kernels.store(values + kScaledRow.rank, DType::kF32, row + kScaledRow.rope_at, DType::kBF16, 1.0f,
                kScaledRow.rope_dim);
}

void read_scaled_row(const RowKernels& kernels, const std::byte* row, float factor, void* to, DType dtype) {
  Group values;
  auto* out = static_cast<std::byte*>(to);
  const auto element = static_cast<std::ptrdiff_t>(size_of(dtype));
  const std::byte* scales = row + kScaledRow.scales_at;
  for (int first = 0; first < kScaledRow.rank; first += kGroup, scales += sizeof(float)) {
    float descale;
    std::memcpy(&descale, scales, sizeof descale);
    kernels.store(row + first, DType::kF8E4M3, values.data(), DType::kF32, 1.0f, kGroup);
    kernels.write(values.data(), descale * factor, out + first * element, dtype, kGroup);
  }
  kernels.store(row + kScaledRow.rope_at, DType::kBF16, values.data(), DType::kF32, 1.0f,
                kScaledRow.rope_dim);
  kernels.write(values.data(), factor, out + kScaledRow.rank * element, dtype, kScaledRow.rope_dim);
}

}  // namespace attend::kernels::cpu
