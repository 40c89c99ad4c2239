// Products of quantized weights with rows of x that are quantized to int8: products and sums of 32 inputs are
// integers and exact; scaled sums are float32.
//
// A unit of x is 32 neighboring inputs: x[i] is about scale * code[i] with scale = max |x| / 127 and codes
// from -127 to 127. llama.cpp rounds x in the same way for formats with blocks of 32, and in units of 256
// inputs for the others, which is less accurate.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attend/base/math.h"
#include "attend/kernels/gemm/cpu/linear_kernel.h"

namespace attend::kernels::cpu {

inline constexpr int kInt8UnitInputs = 32, kInt8RunUnits = 8,
                     kInt8RunInputs = kInt8UnitInputs * kInt8RunUnits;

// 256 neighboring inputs of a row. Inputs after the end of the row are 0.
struct alignas(32) Int8Run {
  int8_t codes[kInt8RunInputs];
  float scales[kInt8RunUnits];
  // scale * sum of codes of the first and of the second 16 inputs of each unit.
  float sums[2][kInt8RunUnits];
};

// Runs of a row, and bytes of num_rows rows.
constexpr int64_t int8_row_runs(int64_t in_features) {
  return ceil_div(in_features, int64_t{kInt8RunInputs});
}
constexpr size_t int8_rows_bytes(int64_t num_rows, int64_t in_features) {
  return static_cast<size_t>(num_rows * int8_row_runs(in_features)) * sizeof(Int8Run);
}

// Runs of row `row` of part.int8_x.
inline const Int8Run* int8_row(const LinearPart& part, int64_t row) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(part.int8_x) + row * part.int8_stride_bytes;
  return reinterpret_cast<const Int8Run*>(bytes);
}

// Returns whether Int8Linear supports the weight: formats of up to 8 bits except fp8, whose values are not
// integers, and groups of whole units.
bool has_int8_products(const Weight& weight);

// A row of x to quantize. With an input order, code i is that of input input_order[i]. 4-bit formats other
// than GGUF's have neighboring inputs in one byte; `splits_pairs` stores the first inputs of a unit's pairs
// before the second ones, as those bytes are split.
struct Int8Source {
  const float* x = nullptr;
  int64_t in_features = 0;
  const int32_t* input_order = nullptr;
  bool splits_pairs = false;
};
Int8Source int8_source(const LinearPart& part, int64_t row);

struct Int8Linear {
  // Writes int8_row_runs() runs. A unit with an infinity or NaN becomes NaN. `to` may be the memory of x,
  // unless there is an input order.
  void (*quantize)(const Int8Source& source, Int8Run* to) = nullptr;
  // Multiplies rows part.int8_x, any number of them. A row's bits depend on its values only.
  void (*multiply)(const LinearPart& part) = nullptr;
  // The same for more than kMaxSkinnyRows rows in all tasks together; sums are added in another order.
  void (*multiply_many)(const LinearPart& part) = nullptr;
};

// One implementation per instruction set. Sums of units are equal in all of them.
Int8Linear int8_linear_portable();
Int8Linear int8_linear_avx2();
Int8Linear int8_linear_avx512bf16();  // with AVX512-VNNI

Int8Linear int8_linear(Isa isa);

}  // namespace attend::kernels::cpu
