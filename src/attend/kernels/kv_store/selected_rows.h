// Rows of a latent cache that queries selected (sparse attention), and rows of FlashMLA's fp8 caches.
#pragma once

#include <cstdint>
#include <string_view>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)

namespace attend::kernels {

struct CompactSlotsArgs {
  TensorView slots;                  // i32 [num_rows, width], last stride 1: token slots
  View<const int32_t> lengths = {};  // [num_rows / rows_per_length]; empty: width for every row
  int32_t rows_per_length = 1;       // rows that share a length
  int64_t num_slots = 0;
  TensorView out;        // i32 [num_rows, width], contiguous; output
  View<int32_t> counts;  // [num_rows]; output
};
// Row i of out starts with the slots in [0, num_slots) among the first `length` slots of row i, in order;
// counts[i] is their number. The rest of the row is 0. Throws Error(kInvalidArgument) for invalid shapes and
// dtypes.
void compact_slots(const CompactSlotsArgs& args, Stream& stream);

// Page layouts of FlashMLA's fp8 caches, with FlashMLA's names. A row starts with e4m3 values that share
// scales in groups, and ends with kPlainValues in bfloat16 without scales.
enum class QuantizedLayout : uint8_t {
  kV32,     // rows of 656 bytes: 512 values, a float32 scale per 128 of them, the plain values
  kModel1,  // rows of 576 bytes: 448 values, the plain values. After all rows of the page follow 8 bytes per
            // row: an e8m0 scale (2^(byte - 127)) per 64 values, and an unused byte
};
struct QuantizedRow {
  int64_t num_scaled, values_per_scale;
  int64_t plain_offset;             // byte offset in the row
  int64_t row_bytes, scales_bytes;  // bytes per row in its page; bytes per row of the scales after all rows,
                                    // or 0
  constexpr int64_t bytes() const { return row_bytes + scales_bytes; }  // bytes per token
  constexpr int64_t dim() const;                                        // values per row
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
  TensorView cache;  // u8 [num_pages, page_size, bytes()]: pages, and rows of kV32, start at multiples of 16
                     // bytes; a page of kModel1 is contiguous
  TensorView slots;  // i32 [num_rows, width], last stride 1; all slots must be valid
  View<const int32_t> counts;      // [num_rows]: number of slots of each row that are dequantized
  View<const int32_t> first = {};  // [num_rows]: first row in out; empty: 0
  TensorView out;  // f32, f16, bf16 [num_rows, room, dim()], contiguous; first + counts must fit; output
};
// Dequantizes slots[i][j] to row first[i] + j of out[i], for j below counts[i]; other rows are not written.
// Throws Error(kInvalidArgument) for invalid shapes, dtypes and, on the CPU, slots, counts and first.
void dequantize_rows(const DequantizeRowsArgs& args, Stream& stream);

// Latent rows with inline scales: FlashMLA's 656 bytes per token. Their cache is DType::kU8 [num_pages,
// page_size, kScaledRow.bytes]; as a cache dtype they are called fp8_ds_mla.

// Byte offsets of the parts of a row: `rank` values in e4m3, a float32 descale per values_per_scale of them,
// `rope_dim` values in bfloat16. It is kV32Row as a latent row.
struct ScaledRow {
  int rank = static_cast<int>(kV32Row.num_scaled);
  int values_per_scale = static_cast<int>(kV32Row.values_per_scale);
  int rope_dim = static_cast<int>(kPlainValues);
  int scales_at = rank;
  int rope_at = static_cast<int>(kV32Row.plain_offset);
  int bytes = static_cast<int>(kV32Row.bytes());
  int alignment = 16;  // in bytes, of rows

  constexpr int width() const { return rank + rope_dim; }
};
inline constexpr ScaledRow kScaledRow{};

constexpr bool has_scaled_rows(const TensorView& cache) { return cache.dtype == DType::kU8; }
// Returns the number of values per row of a cache.
constexpr int64_t latent_width(const TensorView& cache) {
  return has_scaled_rows(cache) ? kScaledRow.width() : cache.shape[2];
}

// Throws Error(kInvalidArgument) unless `cache` is [num_pages, page_size, rank + rope_dim] of a float dtype,
// or aligned scaled rows with this rank and rope_dim.
void require_latent_cache(std::string_view name, const TensorView& cache, int64_t rank, int64_t rope_dim);

// Dtype of a pool of latent rows or of K and V: "fp8_ds_mla" is DType::kU8, the others are those of
// to_string() and parse_dtype(). Throws Error(kInvalidArgument) with the accepted names.
std::string_view cache_dtype_name(DType dtype);
DType parse_cache_dtype(std::string_view name);
inline constexpr std::string_view kCacheDTypeNames =
    "float32, float16, bfloat16, fp8_e4m3 (or fp8), fp8_e5m2 or, for latent attention, fp8_ds_mla";

}  // namespace attend::kernels

#pragma GCC visibility pop
