#include "attend/base/error.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/kv_store/selected_rows.h"

namespace attend::kernels {
namespace {

constexpr std::string_view kScaledRowName = "fp8_ds_mla";

}  // namespace

void require_latent_cache(std::string_view name, const TensorView& cache, int64_t rank, int64_t rope_dim) {
  require_rank(name, cache, 3);
  const int64_t num_pages = cache.shape[0], page_size = cache.shape[1];
  if (!has_scaled_rows(cache)) {
    require_shape(name, cache, {num_pages, page_size, rank + rope_dim});
    return require_cache(name, cache);
  }
  require(rank == kScaledRow.rank && rope_dim == kScaledRow.rope_dim, name, " ", cache, ": rows of ",
          kScaledRowName, " have ", kScaledRow.rank, " and ", kScaledRow.rope_dim, " values, not ", rank,
          " and ", rope_dim);
  require_shape(name, cache, {num_pages, page_size, kScaledRow.bytes});
  require_unit_stride(name, cache);
  require(reinterpret_cast<uintptr_t>(cache.data) % kScaledRow.alignment == 0 &&
              cache.strides[0] % kScaledRow.alignment == 0 && cache.strides[1] % kScaledRow.alignment == 0,
          name, " ", cache, ": expected rows that start at multiples of ", kScaledRow.alignment, " bytes");
}

std::string_view cache_dtype_name(DType dtype) {
  return dtype == DType::kU8 ? kScaledRowName : to_string(dtype);
}

DType parse_cache_dtype(std::string_view name) {
  if (name == kScaledRowName) return DType::kU8;
  try {
    if (const DType dtype = parse_dtype(name); is_float(dtype)) return dtype;
  } catch (const Error&) {
  }
  fail(ErrorCode::kInvalidArgument, "cache dtype '", name, "': expected ", kCacheDTypeNames);
}

}  // namespace attend::kernels
