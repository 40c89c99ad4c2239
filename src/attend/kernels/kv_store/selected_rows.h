// Rows of a latent cache that queries chose (sparse attention), and rows as FlashMLA's fp8 caches hold them.
#pragma once

#include <cstdint>
#include <string_view>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)

namespace attend::kernels {

struct CompactSlotsArgs {
  TensorView slots;                  // i32 [num_rows, width], last stride 1: token slots
  View<const int32_t> lengths = {};  // [num_rows / rows_each]; empty: width for every row
  int32_t rows_each = 1;             // rows that share a length
  int64_t num_slots = 0;
  TensorView out;        // i32 [num_rows, width], contiguous; written
  View<int32_t> counts;  // [num_rows]; written
};
// Row i of out begins with those of the first `length` slots of row i that are in [0, num_slots), in their
// order; counts[i] is how many these are. What comes behind them is 0. Throws Error(kInvalidArgument) for
// shapes and dtypes.
void compact_slots(const CompactSlotsArgs& args, Stream& stream);

// How a page of FlashMLA's fp8 caches holds its rows; the names are FlashMLA's. A row begins with values in
// e4m3 that share a scale in groups, and ends with kPlainValues in bfloat16 that are not scaled.
enum class QuantizedLayout : uint8_t {
  kV32,     // rows of 656 bytes: 512 values, a float32 scale for each 128 of them, the plain values
  kModel1,  // rows of 576 bytes: 448 values, the plain values; behind all rows of the page 8 bytes for each:
            // a scale in e8m0 (2^(byte - 127)) for each 64 values, and a byte without meaning
};
struct QuantizedRow {
  int64_t num_scaled, values_per_scale;
  int64_t plain_offset;             // bytes, in the row
  int64_t row_bytes, scales_bytes;  // of a row in its page; of its scales behind all rows, or 0
  constexpr int64_t bytes() const { return row_bytes + scales_bytes; }  // that a token takes
  constexpr int64_t dim() const;                                        // values of a row
};
inline constexpr int64_t kPlainValues = 64;
constexpr int64_t QuantizedRow::dim() const { return num_scaled + kPlainValues; }
inline constexpr QuantizedRow kV32Row{.num_scaled = 512,
                                      .values_per_scale = 128,
                                      .plain_offset = 512 + 4 * 4,
                                      .row_bytes = 512 + 4 * 4 + 2 * kPlainValues,
                                      .scales_bytes = 0};
inline constexpr QuantizedRow kModel1Row{.num_scaled = 448,
                                         .values_per_scale = 64,
                                         .plain_offset = 448,
                                         .row_bytes = 448 + 2 * kPlainValues,
                                         .scales_bytes = 8};
constexpr const QuantizedRow& quantized_row(QuantizedLayout layout) {
  return layout == QuantizedLayout::kV32 ? kV32Row : kModel1Row;
}

struct DequantizeRowsArgs {
  QuantizedLayout layout = QuantizedLayout::kV32;
  TensorView cache;  // u8 [num_pages, page_size, bytes()]: pages, and rows of kV32, begin at multiples of 16
                     // bytes; a page of kModel1 is contiguous
  TensorView slots;  // i32 [num_rows, width], last stride 1, all of which exist
  View<const int32_t> counts;      // [num_rows]: so many of each row are wanted
  View<const int32_t> first = {};  // [num_rows]: where they begin in out's; empty: 0
  TensorView out;  // f32, f16, bf16 [num_rows, room, dim()], contiguous; first + counts fit; written
};
// Row first[i] + j of out[i] becomes that of slots[i][j], for j below counts[i]; the others are left alone.
// Throws Error(kInvalidArgument) for shapes, dtypes and, on the CPU, slots, counts and first.
void dequantize_rows(const DequantizeRowsArgs& args, Stream& stream);

// Latent rows that say how they are scaled: FlashMLA's 656 bytes of a token. A cache of them is one of
// DType::kU8, [num_pages, page_size, kScaledRow.bytes]; as a cache's dtype they are called fp8_ds_mla.

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
