// Latent rows that say how they are scaled: FlashMLA's 656 bytes of a token. A cache of them is one of
// DType::kU8, [num_pages, page_size, kScaledRow.bytes]; as a cache's dtype they are called fp8_ds_mla.
#pragma once

#include <cstdint>
#include <string_view>

#include "attend/kernels/kv_store/selected_rows.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Where the parts of a row begin, in bytes: `rank` values in e4m3, a descale in float32 for each
// values_per_scale of them, `rope_dim` values in bfloat16. It is kV32Row as a latent row.
struct ScaledRow {
  int rank = static_cast<int>(kV32Row.num_scaled);
  int values_per_scale = static_cast<int>(kV32Row.values_per_scale);
  int rope_dim = static_cast<int>(kPlainValues);
  int scales_at = rank;
  int rope_at = static_cast<int>(kV32Row.plain_offset);
  int bytes = static_cast<int>(kV32Row.bytes());
  int alignment = 16;  // of rows

  constexpr int width() const { return rank + rope_dim; }
};
inline constexpr ScaledRow kScaledRow{};

constexpr bool has_scaled_rows(const TensorView& cache) { return cache.dtype == DType::kU8; }
// Values of a row of a cache.
constexpr int64_t latent_width(const TensorView& cache) {
  return has_scaled_rows(cache) ? kScaledRow.width() : cache.shape[2];
}

// Throws Error(kInvalidArgument) unless `cache` is [num_pages, page_size, rank + rope_dim] of a float dtype,
// or scaled rows, aligned, where a row has their rank and rope_dim.
void require_latent_cache(std::string_view name, const TensorView& cache, int64_t rank, int64_t rope_dim);

// What a pool of latent rows or of K and V is in: "fp8_ds_mla" is DType::kU8, the others are those of
// to_string() and parse_dtype(). Throws Error(kInvalidArgument) with the accepted names.
std::string_view cache_dtype_name(DType dtype);
DType parse_cache_dtype(std::string_view name);
inline constexpr std::string_view kCacheDTypeNames =
    "float32, float16, bfloat16, fp8_e4m3 (or fp8), fp8_e5m2 or, of latent attention, fp8_ds_mla";

}  // namespace attend::kernels
#pragma GCC visibility pop
