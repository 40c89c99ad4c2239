// Rows of a latent cache that queries chose (sparse attention), and rows as FlashMLA's fp8 caches hold them.
#pragma once

#include <cstdint>

#include "attend/tensor/stream.h"
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

// A row of FlashMLA's fp8 caches: 512 values in e4m3, a float32 scale for each 128 of them, and 64 values in
// bfloat16 that are not scaled.
inline constexpr int64_t kScaledValues = 512, kValuesPerScale = 128, kPlainValues = 64;
inline constexpr int64_t kScalesOffset = kScaledValues;
inline constexpr int64_t kPlainOffset = kScalesOffset + kScaledValues / kValuesPerScale * 4;
inline constexpr int64_t kQuantisedRowBytes = kPlainOffset + 2 * kPlainValues;

struct DequantiseRowsArgs {
  TensorView cache;            // u8 [num_pages, page_size, 656]: rows begin at multiples of 16 bytes
  TensorView slots;            // i32 [num_rows, width], last stride 1, all of which exist
  View<const int32_t> counts;  // [num_rows]: so many of each row are wanted
  TensorView out;              // f32, f16, bf16 [num_rows * width, 576], contiguous; written
};
// Row i * width + j of out is that of slots[i][j], for j below counts[i]; the others are left alone. Throws
// Error(kInvalidArgument) for shapes, dtypes and, on the CPU, slots and counts.
void dequantise_rows(const DequantiseRowsArgs& args, Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
