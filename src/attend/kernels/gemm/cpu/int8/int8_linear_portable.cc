// Products in plain C++, which other instruction sets are tested against.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "attend/kernels/common/cpu/simd_portable.h"
#include "attend/kernels/gemm/cpu/add_bias.h"
#include "attend/kernels/gemm/cpu/int8/int8_units.h"

namespace attend::kernels::cpu {
namespace {

// Units with smaller values are 0: 127 / maximum would overflow.
constexpr float kMinMaximum = 0x1p-100f;

void quantize_unit(const float (&x)[kInt8UnitInputs], bool splits_pairs, Int8Run& run, int u) {
  uint32_t maximum_bits = 0;  // magnitudes are ordered like their bits, with NaN last
  for (const float value : x)
    maximum_bits = std::max(maximum_bits, std::bit_cast<uint32_t>(value) & 0x7fffffffu);
  const float maximum = std::bit_cast<float>(maximum_bits);
  int8_t* const codes = run.codes + u * kInt8UnitInputs;
  const bool finite = maximum_bits < 0x7f800000u;
  if (!finite || maximum < kMinMaximum) {
    std::fill_n(codes, kInt8UnitInputs, int8_t{0});
    run.scales[u] = run.sums[0][u] = run.sums[1][u] = finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    return;
  }
  const float inverse = 127.0f / maximum;
  run.scales[u] = maximum / 127.0f;
  for (int half = 0; half < 2; ++half) {
    int sum = 0;
    for (int i = half * kHalfUnit; i < (half + 1) * kHalfUnit; ++i) {
      const auto code = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
      codes[splits_pairs ? i / 2 + i % 2 * kHalfUnit : i] = code;
      sum += code;
    }
    run.sums[half][u] = run.scales[u] * static_cast<float>(sum);
  }
}

void quantize(const Int8Source& source, Int8Run* to) {
  for (int64_t run = 0; run < int8_row_runs(source.in_features); ++run) {
    Int8Run made;  // `to` may overlap with the run's inputs
    for (int u = 0; u < kInt8RunUnits; ++u) {
      float x[kInt8UnitInputs] = {};
      const int64_t first = run * kInt8RunInputs + u * kInt8UnitInputs;
      for (int i = 0; i < kInt8UnitInputs && first + i < source.in_features; ++i)
        x[i] = source.x[source.input_order == nullptr ? first + i : source.input_order[first + i]];
      quantize_unit(x, source.splits_pairs, made, u);
    }
    to[run] = made;
  }
}

float multiply_run(const DecodedRun& weights, const Int8Run& x, float sum) {
  for (int u = 0; u < kInt8RunUnits; ++u)
    for (int half = 0; half < 2; ++half) {
      const int8_t* const codes = weights.codes[u] + half * kHalfUnit;
      const int8_t* const inputs = x.codes + u * kInt8UnitInputs + half * kHalfUnit;
      int32_t products = 0;
      for (int i = 0; i < kHalfUnit; ++i) products += codes[i] * inputs[i];
      sum += static_cast<float>(products) * (weights.scales[half][u] * x.scales[u]);
      sum -= weights.minima[half][u] * x.sums[half][u];
    }
  return sum;
}

void multiply(const LinearPart& part) {
  const int64_t row_bytes = weight_row_bytes(part);
  const DecodeBlockRun decode =
      part.groups.format == WeightFormat::kBlocks ? block_run_decoder(part.groups.block_format) : nullptr;
  for (int64_t out = 0; out < part.num_outs; ++out) {
    for (int64_t row = 0; row < part.num_rows; ++row) part.out[row * part.out_stride + out] = 0.0f;
    for (int64_t run = 0; run < int8_row_runs(part.in_features); ++run) {
      DecodedRun weights;
      decode_run(part, decode, row_bytes, out, run, weights);
      for (int64_t row = 0; row < part.num_rows; ++row) {
        float& sum = part.out[row * part.out_stride + out];
        sum = multiply_run(weights, int8_row(part, row)[run], sum);
      }
    }
  }
  add_bias<Portable>(part);
}

}  // namespace

Int8Linear int8_linear_portable() {
  return {.quantize = &quantize, .multiply = &multiply, .multiply_many = &multiply};
}

}  // namespace attend::kernels::cpu
