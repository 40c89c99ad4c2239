#include "attend/kernels/kv_store/selected_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/cpu/row_kernels.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/kv_store/cuda/store.h"

namespace attend::kernels {
namespace {

void check_slots(std::string_view name, const TensorView& slots, const Stream& stream) {
  require_rank(name, slots, 2);
  require_dtype(name, slots, DType::kI32);
  require_unit_stride(name, slots);
  require_on(stream, name, slots);
}

void compact_on_host(const CompactSlotsArgs& args) {
  const int64_t width = args.slots.shape[1];
  parallel_for_rows(args.slots.shape[0], width, [&](int64_t row) {
    const int32_t* const slots = args.slots.as<const int32_t>() + row * args.slots.strides[0];
    int32_t* const out = args.out.as<int32_t>() + row * width;
    const int64_t length =
        args.lengths.empty()
            ? width
            : std::clamp<int64_t>(args.lengths[static_cast<size_t>(row / args.rows_per_length)], 0, width);
    int32_t* end = std::copy_if(slots, slots + length, out,
                                [&](int32_t slot) { return slot >= 0 && slot < args.num_slots; });
    args.counts[static_cast<size_t>(row)] = static_cast<int32_t>(end - out);
    std::fill(end, out + width, 0);
  });
}

float e8m0_to_float(uint8_t bits) {
  return bits == 0xff ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, int{bits} - 127);
}

// Dequantizes a row of `page`, given its index in the page, to float32.
void dequantize(const DequantizeRowsArgs& args, const std::byte* page, int64_t at,
                const cpu::RowKernels& kernels, float* row) {
  const QuantizedRow& held = quantized_row(args.layout);
  const std::byte* const from = page + at * (held.scales_bytes == 0 ? args.cache.strides[1] : held.row_bytes);
  const std::byte* const scales = held.scales_bytes == 0
                                      ? from + held.num_scaled
                                      : page + args.cache.shape[1] * held.row_bytes + at * held.scales_bytes;
  const auto num_values = static_cast<int>(held.values_per_scale);
  for (int64_t group = 0; group < held.num_scaled / held.values_per_scale; ++group) {
    float scale = 0.0f;
    if (args.layout == QuantizedLayout::kV32)
      std::memcpy(&scale, scales + group * 4, sizeof scale);
    else
      scale = e8m0_to_float(static_cast<uint8_t>(scales[group]));
    float* const to = row + group * held.values_per_scale;
    kernels.store(from + group * held.values_per_scale, DType::kF8E4M3, to, DType::kF32, 1.0f, num_values);
    for (int i = 0; i < num_values; ++i) to[i] *= scale;
  }
  kernels.store(from + held.plain_offset, DType::kBF16, row + held.num_scaled, DType::kF32, 1.0f,
                static_cast<int>(kPlainValues));
}

int32_t row_offset(const DequantizeRowsArgs& args, int64_t row) {
  return args.first.empty() ? 0 : args.first[static_cast<size_t>(row)];
}

void check_on_host(const DequantizeRowsArgs& args) {
  const int64_t width = args.slots.shape[1], room = args.out.shape[1];
  const int64_t num_slots = args.cache.shape[0] * args.cache.shape[1];
  for (int64_t i = 0; i < args.slots.shape[0]; ++i) {
    const int32_t count = args.counts[static_cast<size_t>(i)], first = row_offset(args, i);
    require(count >= 0 && count <= width, "counts[", i, "] is ", count, ": expected 0 to ", width);
    require(first >= 0 && first + int64_t{count} <= room, "first[", i, "] is ", first, ": out holds ", room,
            " rows, ", count, " are requested");
    for (int64_t j = 0; j < count; ++j) {
      const int32_t slot = args.slots.as<const int32_t>()[i * args.slots.strides[0] + j];
      require(slot >= 0 && slot < num_slots, "slots[", i, ", ", j, "] is ", slot, ": the cache has ",
              num_slots);
    }
  }
}

void dequantize_on_host(const DequantizeRowsArgs& args) {
  const cpu::RowKernels kernels = cpu::row_kernels(cpu::detect_isa());
  const int64_t width = args.slots.shape[1], page_size = args.cache.shape[1], dim = args.out.shape[2];
  check_on_host(args);
  parallel_for_rows(args.slots.shape[0] * width, dim, [&](int64_t at) {
    const int64_t i = at / width, j = at % width;
    if (j >= args.counts[static_cast<size_t>(i)]) return;
    const int64_t slot = args.slots.as<const int32_t>()[i * args.slots.strides[0] + j];
    std::array<float, std::max(kV32Row.dim(), kModel1Row.dim())> row;
    dequantize(args,
               static_cast<const std::byte*>(args.cache.data) + slot / page_size * args.cache.strides[0],
               slot % page_size, kernels, row.data());
    kernels.write(row.data(), 1.0f, args.out[i][row_offset(args, i) + j].data, args.out.dtype,
                  static_cast<int>(dim));
  });
}

}  // namespace

void compact_slots(const CompactSlotsArgs& args, Stream& stream) {
  check_slots("slots", args.slots, stream);
  check_slots("out", args.out, stream);
  const int64_t num_rows = args.slots.shape[0];
  require_shape("out", args.out, {num_rows, args.slots.shape[1]});
  require(args.out.is_contiguous(), "out ", args.out, ": expected a contiguous tensor");
  require(std::ssize(args.counts) == num_rows, "counts of ", args.counts.size(), " entries: expected ",
          num_rows);
  require(args.rows_per_length >= 1, "rows_per_length ", args.rows_per_length, ": expected at least 1");
  require(args.lengths.empty() || std::ssize(args.lengths) * args.rows_per_length == num_rows, "lengths of ",
          args.lengths.size(), " entries: expected one for each ", args.rows_per_length, " of ", num_rows,
          " rows");
  if (num_rows == 0) return;
  if (const OnGpu gpu(stream); gpu) return cuda::compact_slots(args, stream);
  compact_on_host(args);
}

void dequantize_rows(const DequantizeRowsArgs& args, Stream& stream) {
  const QuantizedRow& held = quantized_row(args.layout);
  require_rank("cache", args.cache, 3);
  require_dtype("cache", args.cache, DType::kU8);
  require_shape("cache", args.cache, {args.cache.shape[0], args.cache.shape[1], held.bytes()});
  require_unit_stride("cache", args.cache);
  require_on(stream, "cache", args.cache);
  constexpr int64_t kAlignment = 16;
  require(reinterpret_cast<uintptr_t>(args.cache.data) % kAlignment == 0 &&
              args.cache.strides[0] % kAlignment == 0 &&
              (held.scales_bytes != 0 || args.cache.strides[1] % kAlignment == 0),
          "cache ", args.cache, ": expected rows that start at multiples of ", kAlignment, " bytes");
  require(held.scales_bytes == 0 || args.cache.shape[1] <= 1 || args.cache.strides[1] == held.bytes(),
          "cache ", args.cache, ": expected contiguous pages");
  check_slots("slots", args.slots, stream);
  const int64_t num_rows = args.slots.shape[0];
  require(std::ssize(args.counts) == num_rows, "counts of ", args.counts.size(), " entries: expected ",
          num_rows);
  require(args.first.empty() || std::ssize(args.first) == num_rows, "first of ", args.first.size(),
          " entries: expected ", num_rows);
  require_activation("out", args.out);
  require_rank("out", args.out, 3);
  require_shape("out", args.out, {num_rows, args.out.shape[1], held.dim()});
  require(args.out.is_contiguous(), "out ", args.out, ": expected a contiguous tensor");
  require_on(stream, "out", args.out);
  if (args.slots.num_elements() == 0) return;
  if (const OnGpu gpu(stream); gpu) return cuda::dequantize_rows(args, stream);
  dequantize_on_host(args);
}

}  // namespace attend::kernels
