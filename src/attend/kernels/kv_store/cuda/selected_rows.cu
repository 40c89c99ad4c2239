// Rows of a latent cache that queries selected: compaction of valid slots, and dequantization of fp8 rows
// with scales.
//
//   tile        compact: one row of slots per CTA, 256 at a time; dequantize: one row of the cache per warp,
//               16 scaled values per lane (with 448 values, the last four lanes have 16 plain values instead)
//   warps       8, all alike; 4
//   shared      64 bytes of counts; none
//   bytes       slots read and written once; per row 656 or 584 read, and 2 or 4 per value written
//   bound       latency; bytes
#include "attend/base/math.h"
#include "attend/kernels/common/cuda/e8m0.cuh"
#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/kv_store/cuda/store.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kCompactThreads = 256, kCompactWarps = kCompactThreads / 32;
constexpr int kDequantizeWarps = 4;
constexpr uint32_t kAllLanes = 0xffffffffu;

struct CompactParams {
  const int32_t* slots;
  int64_t slot_stride;
  const int32_t* lengths;  // null: width
  int32_t rows_per_length, width;
  int64_t num_slots;
  int32_t* out;     // [num_rows, width]
  int32_t* counts;  // [num_rows]
};

__global__ void __launch_bounds__(kCompactThreads)
    compact_kernel(const __grid_constant__ CompactParams params) {
  __shared__ int warp_counts[2][kCompactWarps];  // double buffer: a thread that passes the second barrier has
                                                 // read the first
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int32_t* const slots = params.slots + row * params.slot_stride;
  int32_t* const out = params.out + row * params.width;
  const int length = params.lengths == nullptr
                         ? params.width
                         : max(0, min(params.lengths[row / params.rows_per_length], params.width));
  int count = 0, buffer = 0;
  for (int first = 0; first < length; first += kCompactThreads, buffer ^= 1) {
    const int i = first + static_cast<int>(threadIdx.x);
    const int32_t slot = i < length ? slots[i] : -1;
    const bool exists = slot >= 0 && slot < params.num_slots;
    const uint32_t all = __ballot_sync(kAllLanes, exists);
    if (lane == 0) warp_counts[buffer][warp] = __popc(all);
    __syncthreads();
    int at = count + __popc(all & ((1u << lane) - 1));
    for (int other = 0; other < kCompactWarps; ++other) {
      if (other < warp) at += warp_counts[buffer][other];
      count += warp_counts[buffer][other];
    }
    if (exists) out[at] = slot;
  }
  for (int i = count + static_cast<int>(threadIdx.x); i < params.width; i += kCompactThreads) out[i] = 0;
  if (threadIdx.x == 0) params.counts[row] = count;
}

struct DequantizeParams {
  const uint8_t* cache;
  int64_t page_stride, token_stride;  // in bytes; token_stride: between rows of a page
  int32_t page_size;
  const int32_t* slots;
  int64_t slot_stride;
  const int32_t* counts;
  const int32_t* first;  // null: 0
  int64_t num_rows;      // rows of slots, each with `width`
  int32_t width, room;
  void* out;  // [.., room, dim]
  Element element;
};

template <QuantizedLayout kLayout>
constexpr QuantizedRow kRowLayout = quantized_row(kLayout);
template <QuantizedLayout kLayout>
constexpr int64_t kDim = kRowLayout<kLayout>.dim();

constexpr int kValuesPerLane = 16;

// Called by one warp: writes lane l's values of a row to out from element `to`.
template <QuantizedLayout kLayout>
__device__ void dequantize(const DequantizeParams& params, int32_t slot, int64_t to) {
  constexpr QuantizedRow kRow = kRowLayout<kLayout>;
  constexpr int kScaledLanes = static_cast<int>(kRow.num_scaled) / kValuesPerLane;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint8_t* const page = params.cache + slot / params.page_size * params.page_stride;
  const int at = slot % params.page_size;
  const uint8_t* const from = page + at * params.token_stride;
  if (lane < kScaledLanes) {
    const uint4 codes = *reinterpret_cast<const uint4*>(from + lane * kValuesPerLane);
    const int scale_group = lane * kValuesPerLane / static_cast<int>(kRow.values_per_scale);
    float scale;
    if constexpr (kLayout == QuantizedLayout::kV32) {
      scale = *reinterpret_cast<const float*>(from + kRow.num_scaled + scale_group * 4);
    } else {
      const uint8_t bits = page[params.page_size * kRow.row_bytes + at * kRow.scales_bytes + scale_group];
      scale = bits == 0xff ? __int_as_float(0x7fffffff) : e8m0_to_float(bits);
    }
    const auto* const bytes = reinterpret_cast<const __nv_fp8_storage_t*>(&codes);
#pragma unroll
    for (int half = 0; half < kValuesPerLane / kGroupElements; ++half) {
      float group[kGroupElements];
#pragma unroll
      for (int k = 0; k < kGroupElements; ++k)
        group[k] = from_fp8(bytes[half * kGroupElements + k], __NV_E4M3) * scale;
      store_group(params.out, to + lane * kValuesPerLane + half * kGroupElements, params.element, group);
    }
  }
  // Plain values are two per lane, or all belong to the lanes without scaled values.
  constexpr int kPlainLanes = kScaledLanes == 32 ? 32 : 32 - kScaledLanes;
  constexpr int kPairsPerLane = static_cast<int>(kPlainValues) / 2 / kPlainLanes;
  const int plain_lane = lane - (32 - kPlainLanes);
  if (plain_lane < 0) return;
#pragma unroll
  for (int i = 0; i < kPairsPerLane; ++i) {
    const int pair = plain_lane * kPairsPerLane + i;
    const auto plain = *reinterpret_cast<const __nv_bfloat162*>(from + kRow.plain_offset + pair * 4);
    const int64_t element = to + kRow.num_scaled + 2 * pair;
    store_element(params.out, element, params.element, __low2float(plain));
    store_element(params.out, element + 1, params.element, __high2float(plain));
  }
}

template <QuantizedLayout kLayout>
__global__ void __launch_bounds__(32 * kDequantizeWarps)
    dequantize_kernel(const __grid_constant__ DequantizeParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const int64_t row = int64_t{blockIdx.x} * kDequantizeWarps + threadIdx.x / 32;
  if (row >= params.num_rows) return;
  const int64_t i = row / params.width, j = row % params.width;
  if (j >= params.counts[i]) return;
  const int32_t slot = params.slots[i * params.slot_stride + j];
  const int64_t to = i * params.room + (params.first == nullptr ? 0 : params.first[i]) + j;
  dequantize<kLayout>(params, slot, to * kDim<kLayout>);
}

}  // namespace

void compact_slots(const CompactSlotsArgs& args, Stream& stream) {
  const CompactParams params{.slots = args.slots.as<const int32_t>(),
                             .slot_stride = args.slots.strides[0],
                             .lengths = args.lengths.data(),
                             .rows_per_length = args.rows_per_length,
                             .width = static_cast<int32_t>(args.slots.shape[1]),
                             .num_slots = args.num_slots,
                             .out = args.out.as<int32_t>(),
                             .counts = args.counts.data()};
  launch_dependent<CompactParams>(compact_kernel, static_cast<unsigned>(args.slots.shape[0]), kCompactThreads,
                                  0, stream.handle, params, "compact_slots");
}

void dequantize_rows(const DequantizeRowsArgs& args, Stream& stream) {
  const QuantizedRow& held = quantized_row(args.layout);
  const int64_t num_rows = args.slots.shape[0] * args.slots.shape[1];
  const DequantizeParams params{
      .cache = static_cast<const uint8_t*>(args.cache.data),
      .page_stride = args.cache.strides[0],
      .token_stride = held.scales_bytes == 0 ? args.cache.strides[1] : held.row_bytes,
      .page_size = static_cast<int32_t>(args.cache.shape[1]),
      .slots = args.slots.as<const int32_t>(),
      .slot_stride = args.slots.strides[0],
      .counts = args.counts.data(),
      .first = args.first.data(),
      .num_rows = num_rows,
      .width = static_cast<int32_t>(args.slots.shape[1]),
      .room = static_cast<int32_t>(args.out.shape[1]),
      .out = args.out.data,
      .element = to_element_type(args.out.dtype)};
  const auto kernel = args.layout == QuantizedLayout::kV32 ? dequantize_kernel<QuantizedLayout::kV32>
                                                           : dequantize_kernel<QuantizedLayout::kModel1>;
  launch_dependent<DequantizeParams>(kernel,
                                     static_cast<unsigned>(ceil_div<int64_t>(num_rows, kDequantizeWarps)),
                                     32 * kDequantizeWarps, 0, stream.handle, params, "dequantize_rows");
}

}  // namespace attend::kernels::cuda
