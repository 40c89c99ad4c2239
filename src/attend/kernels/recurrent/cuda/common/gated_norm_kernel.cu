// x = RMSNorm(x) * silu(gate), or sigmoid(gate), per head: the norm after the gated delta rule.
//
//   tile        16 rows per CTA
//   warps       8; 16 lanes per row, a group of eight elements each
//   registers   40 to 56
//   shared      none
//   bytes       gate read once, x read and written once; rows above 128 elements read x twice, from L1
//   bound       memory; latency if rows are few
#include <type_traits>

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/norm_rope/cuda/row_kernels.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_kernels.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLanesPerRow = 16;
constexpr int kRowsPerCta = kThreads / kLanesPerRow;

// silu(gate) or sigmoid(gate). Results of 16 bits do not need an exact division.
template <class Row>
__device__ float activate(float gate, bool sigmoid) {
  const float factor = sigmoid ? 1.0f : gate;
  if constexpr (std::is_same_v<Row, UnalignedRow>)
    return factor / (1.0f + expf(-gate));
  else
    return __fdividef(factor, 1.0f + __expf(-gate));
}

// The row that starts at element `begin`.
template <class Row>
__device__ Row row_at(const DeviceRows& rows, int64_t begin, const GatedNormParams& params) {
  const int element_bytes = rows.element == Element::kF32 ? 4 : 2;
  return Row({static_cast<char*>(rows.data) + begin * element_bytes, 0, 0, 1, rows.element}, 0, params.dim,
             params.aligned);
}

template <class Row>
__global__ void __launch_bounds__(kThreads)
    gated_norm_kernel(const __grid_constant__ GatedNormParams params) {
  ptx::launch_dependents();
  const int lane = static_cast<int>(threadIdx.x) % kLanesPerRow;
  const int first = static_cast<int>(blockIdx.x) * kRowsPerCta + static_cast<int>(threadIdx.x) / kLanesPerRow;
  const bool exists = first < params.num_rows;
  const int row = exists ? first : params.num_rows - 1;  // all lanes take part in the sums
  // In 32 bits: a division of 64 bits takes as long as the rest of the row.
  const int token = row / params.num_heads, head = row % params.num_heads;
  const int group = head / params.heads_per_group, in_group = head % params.heads_per_group;
  const Row x = row_at<Row>(params.x, token * params.x.outer_stride + head * params.x.inner_stride, params);
  const Row gates = row_at<Row>(
      params.gate,
      token * params.gate.outer_stride + group * params.gate.inner_stride + int64_t{in_group} * params.dim,
      params);
  const UnalignedRow weight({const_cast<void*>(params.weight.data), 0, 0, 1, params.weight.element}, 0,
                            params.dim, params.weight_aligned);
  const int num_groups = num_element_groups(params.dim);
  ptx::griddepcontrol_wait();
  float sum = 0.0f;
  for (int g = lane; g < num_groups; g += kLanesPerRow) {
    Group group;
    Row::convert(x.load(g), group);
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) sum = fmaf(group[i], group[i], sum);
  }
#pragma unroll
  for (int step = kLanesPerRow / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (!exists) return;
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(params.dim) + params.eps);
  for (int g = lane; g < num_groups; g += kLanesPerRow) {
    const typename Row::Bits gate_bits = gates.load(g);
    Group group, gate, weights;
    Row::convert(x.load(g), group);
    Row::convert(gate_bits, gate);
    UnalignedRow::convert(weight.load(g), weights);
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i)
      group[i] *= scale * weights[i] * activate<Row>(gate[i], params.sigmoid);
    x.store(g, group);
  }
}

}  // namespace

void launch_gated_norm(const GatedNormParams& params, void* stream) {
  if (params.num_rows == 0) return;
  launch_for_rows(params.aligned, {params.x.element, params.gate.element}, [&]<class Row> {
    launch_dependent<GatedNormParams>(gated_norm_kernel<Row>,
                                      static_cast<unsigned>(ceil_div(params.num_rows, kRowsPerCta)), kThreads,
                                      0, stream, params, "gated_norm");
  });
}

}  // namespace attend::kernels::cuda
