// Norm and gate of groups of features: the norm after the selective scan.
//
//   tile        one group of a token's features per row: 4 rows per CTA of a warp each, or a CTA per row with
//               more than 1024 features
//   warps       4, or 2 to 16
//   registers   4 groups of eight elements per thread
//   shared      64 bytes for a sum
//   bytes       gate read once, x read and written once; rows above 16384 features read twice, from L1
//   bound       memory; latency if rows are few
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/norm_rope/cuda/row_kernels.cuh"
#include "attend/kernels/recurrent/cuda/common/scan_kernels.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kKeptGroups = 4;
constexpr int kRowWarps = 4;  // rows of a CTA whose rows have one warp each
constexpr int kWarpRowFeatures = 32 * kKeptGroups * kGroupElements;

template <class Row>
class GatedRow {
 public:
  __device__ GatedRow(const GroupedGatedNormParams& params, int64_t row)
      : order_(params.order),
        x_(params.x, row, params.dim, params.aligned),
        gate_(params.gate, row, params.dim, params.aligned),
        weight_(params.weight, params.weight.data == nullptr ? 0 : row, params.dim, params.aligned) {}

  // Loads a group of x, times its gate if the gate is first. Returns its sum of squares; 0 past the row's
  // end.
  __device__ float load(int g, Group& group) const {
    Row::convert(x_.load(g), group);
    if (order_ != GateOrder::kNormFirst) apply_gate(g, group);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) sum = fmaf(group[i], group[i], sum);
    return sum;
  }
  __device__ void store(int g, Group& group, float scale) const {
    if (order_ != GateOrder::kGateOnly) {
      Group weights;
      Row::convert(weight_.load(g), weights);
#pragma unroll
      for (int i = 0; i < kGroupElements; ++i) group[i] *= scale * weights[i];
    }
    if (order_ == GateOrder::kNormFirst) apply_gate(g, group);
    x_.store(g, group);
  }

 private:
  __device__ void apply_gate(int g, Group& group) const {
    Group gates;
    Row::convert(gate_.load(g), gates);
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) group[i] *= __fdividef(gates[i], 1.0f + expf(-gates[i]));
  }

  const GateOrder order_;
  const Row x_, gate_, weight_;
};

// `row_threads` threads per row: 32, or all of a CTA.
template <class Row>
__global__ void __launch_bounds__(kMaxNormThreads, 1)
    grouped_gated_norm_kernel(const __grid_constant__ GroupedGatedNormParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const int thread = static_cast<int>(threadIdx.x), num_threads = params.row_threads;
  const int num_rows = static_cast<int>(blockDim.x) / num_threads;
  const int64_t row_idx = static_cast<int64_t>(blockIdx.x) * num_rows + thread / num_threads;
  if (row_idx >= params.num_rows) return;
  const GatedRow<Row> row(params, row_idx);
  const int num_groups = num_element_groups(params.dim), first_group = thread % num_threads;
  Group kept[kKeptGroups];
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j)
    if (const int g = first_group + j * num_threads; g < num_groups) sum += row.load(g, kept[j]);
  for (int g = first_group + kKeptGroups * num_threads; g < num_groups; g += num_threads) {
    Group group;
    sum += row.load(g, group);
  }
  sum = num_threads == 32 ? warp_sum(sum) : cta_sum(sum);
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(params.dim) + params.eps);
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j)
    if (const int g = first_group + j * num_threads; g < num_groups) row.store(g, kept[j], scale);
  for (int g = first_group + kKeptGroups * num_threads; g < num_groups; g += num_threads) {
    Group group;
    row.load(g, group);
    row.store(g, group, scale);
  }
}

}  // namespace

void launch_grouped_gated_norm(const GroupedGatedNormParams& params, void* stream) {
  if (params.num_rows == 0 || params.dim == 0) return;
  const Element weight = params.weight.data == nullptr ? params.x.element : params.weight.element;
  GroupedGatedNormParams launched = params;
  int num_threads = 32 * kRowWarps, num_ctas = ceil_div(params.num_rows, kRowWarps);
  launched.row_threads = 32;
  if (params.dim > kWarpRowFeatures) {
    launched.row_threads = num_threads =
        num_threads_for(ceil_div(num_element_groups(params.dim), kKeptGroups), kMaxNormThreads);
    num_ctas = params.num_rows;
  }
  launch_for_rows(params.aligned, {params.x.element, params.gate.element, weight}, [&]<class Row> {
    launch_dependent<GroupedGatedNormParams>(grouped_gated_norm_kernel<Row>, static_cast<unsigned>(num_ctas),
                                             num_threads, 0, stream, launched, "grouped_gated_norm");
  });
}

}  // namespace attend::kernels::cuda
