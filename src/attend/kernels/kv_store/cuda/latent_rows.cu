// Gather of latent rows from a pool, and copies of rows to all heads.
//
//   tile        lengths: all requests in one thread; gather, copy: one CTA per row
//   warps       4, all alike
//   shared      none
//   bytes       one row read, one row (copy: one per head) written
//   bound       bytes; for few rows latency
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/kv_store/cuda/scaled_rows.cuh"
#include "attend/kernels/kv_store/cuda/store.h"
#include "attend/kernels/metadata/lengths.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 128;

struct GatherParams {
  const void* cache;
  int64_t page_stride, token_stride;
  void* out;             // [num_rows, width]
  const int32_t* table;  // [.., table_stride]
  int64_t table_stride;
  const int32_t* rows;  // [num_reqs]
  const int32_t* slot_map;
  const int32_t* seqlen_kv;    // [num_reqs]
  const int32_t* cu_seqlen_q;  // [num_reqs + 1]
  int32_t* cu_out;             // [num_reqs + 1]
  int32_t* seqlen_out;         // [num_reqs]
  int32_t num_reqs, first, count, page_size, width;
  float scale;
  Element cache_element, out_element;
  bool scaled_rows;  // strides then count bytes
};

__global__ void gather_lengths_kernel(const __grid_constant__ GatherParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  int32_t sum = 0;
  params.cu_out[0] = 0;
  for (int32_t r = 0; r < params.num_reqs; ++r) {
    const int32_t prefix = params.seqlen_kv[r] - (params.cu_seqlen_q[r + 1] - params.cu_seqlen_q[r]);
    const int32_t length = max(0, min(prefix - params.first, params.count));
    params.seqlen_out[r] = length;
    sum += length;
    params.cu_out[r + 1] = sum;
  }
}

__global__ void __launch_bounds__(kThreads) gather_kernel(const __grid_constant__ GatherParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const auto row = static_cast<int32_t>(blockIdx.x);
  if (row >= params.cu_out[params.num_reqs]) return;
  const int32_t r = last_begin(params.cu_out, params.num_reqs, row);
  const int32_t position = params.first + row - params.cu_out[r];
  int32_t slot = params.table[params.rows[r] * params.table_stride + position];
  if (params.slot_map != nullptr) slot = params.slot_map[slot];
  const int64_t from =
      slot / params.page_size * params.page_stride + slot % params.page_size * params.token_stride;
  for (int d = static_cast<int>(threadIdx.x); d < params.width; d += kThreads) {
    const float value = params.scaled_rows ? load_scaled(static_cast<const uint8_t*>(params.cache) + from, d)
                                           : load_element(params.cache, from + d, params.cache_element);
    store_element(params.out, int64_t{row} * params.width + d, params.out_element, value * params.scale);
  }
}

struct LengthsParams {
  const int32_t* sums;  // [num + 1]
  int32_t* lengths;
  int32_t num;
};

__global__ void __launch_bounds__(kThreads) lengths_kernel(const __grid_constant__ LengthsParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const auto i = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (i < params.num) params.lengths[i] = params.sums[i + 1] - params.sums[i];
}

struct CopyParams {
  TokenRows from;
  OutRows to;
  int32_t num_heads, dim;
  Element element;
};

__global__ void __launch_bounds__(kThreads) copy_to_heads_kernel(const __grid_constant__ CopyParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const int64_t token = blockIdx.x;
  for (int i = static_cast<int>(threadIdx.x); i < params.num_heads * params.dim; i += kThreads) {
    const int head = i / params.dim, d = i % params.dim;
    store_element(params.to.data, token * params.to.token_stride + head * params.to.head_stride + d,
                  params.element,
                  load_element(params.from.data, token * params.from.token_stride + d, params.element));
  }
}

}  // namespace

void gather_latent(const GatherLatentArgs& args, Stream& stream) {
  require_on_device("cache", args.cache, stream);
  const bool scaled = has_scaled_rows(args.cache);
  const GatherParams params{.cache = args.cache.data,
                            .page_stride = args.cache.strides[0],
                            .token_stride = args.cache.strides[1],
                            .out = args.out.data,
                            .table = args.requests.table,
                            .table_stride = args.requests.stride,
                            .rows = args.requests.rows.data(),
                            .slot_map = args.requests.slot_map,
                            .seqlen_kv = args.requests.seqlen_kv.data(),
                            .cu_seqlen_q = args.cu_seqlen_q.data(),
                            .cu_out = args.cu_seqlen_kv.data(),
                            .seqlen_out = args.seqlen_kv.data(),
                            .num_reqs = static_cast<int32_t>(args.requests.rows.size()),
                            .first = args.first,
                            .count = args.count,
                            .page_size = static_cast<int32_t>(args.cache.shape[1]),
                            .width = static_cast<int32_t>(latent_width(args.cache)),
                            .scale = args.scale,
                            .cache_element = scaled ? Element::kF8E4M3 : to_element_type(args.cache.dtype),
                            .out_element = to_element_type(args.out.dtype),
                            .scaled_rows = scaled};
  launch_dependent<GatherParams>(gather_lengths_kernel, dim3(1), 1, 0, stream.handle, params,
                                 "gather_latent");
  launch_dependent<GatherParams>(
      gather_kernel, dim3(static_cast<unsigned>(params.num_reqs) * static_cast<unsigned>(params.count)),
      kThreads, 0, stream.handle, params, "gather_latent");
}

void cu_seqlens_to_lengths(View<const int32_t> sums, View<int32_t> lengths, Stream& stream) {
  const auto num = static_cast<int32_t>(lengths.size());
  launch_dependent<LengthsParams>(lengths_kernel,
                                  dim3(static_cast<unsigned>((num + kThreads - 1) / kThreads)), kThreads, 0,
                                  stream.handle, {sums.data(), lengths.data(), num}, "cu_seqlens_to_lengths");
}

void copy_to_heads(const TensorView& from, const TensorView& to, Stream& stream) {
  launch_dependent<CopyParams>(copy_to_heads_kernel, dim3(static_cast<unsigned>(from.shape[0])), kThreads, 0,
                               stream.handle,
                               {.from = {from.data, from.strides[0], 0},
                                .to = out_rows(to),
                                .num_heads = static_cast<int32_t>(to.shape[1]),
                                .dim = static_cast<int32_t>(to.shape[2]),
                                .element = to_element_type(to.dtype)},
                               "copy_to_heads");
}

}  // namespace attend::kernels::cuda
