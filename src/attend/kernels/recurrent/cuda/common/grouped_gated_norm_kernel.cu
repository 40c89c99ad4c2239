// Norm and gate of groups of features: the norm after the selective scan.
//
//   tile        one group of a token's features per row: 4 rows per CTA of a warp each, or a CTA per row with
//               more than 512 features
//   warps       4, or 2 to 16
//   registers   2 groups of eight elements per thread
//   shared      64 bytes for a sum
//   bytes       gate read once, x read and written once; rows above 8192 features read twice, from L1
//   bound       memory; latency if rows are few
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/norm_rope/cuda/row_kernels.cuh"
#include "attend/kernels/recurrent/cuda/common/scan_kernels.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kKeptGroups = 2;
constexpr int kRowWarps = 4;  // rows of a CTA whose rows have one warp each
constexpr int kWarpRowFeatures = 32 * kKeptGroups * kGroupElements;

template <class Row>
class GatedRow {
 public:
  using Bits = typename Row::Bits;

  __device__ GatedRow(const GroupedGatedNormParams& params, int token, int group)
      : order_(params.order),
        x_(make_row(params, params.x, token, group)),
        gate_(make_row(params, params.gate, token, group)),
        weight_(make_row(params, params.weight, 0, group)) {}

  __device__ Bits load_x(int g) const { return x_.load(g); }
  __device__ Bits load_gate(int g) const { return gate_.load(g); }
  __device__ Bits load_weights(int g) const {
    return order_ == GateOrder::kGateOnly ? Bits{} : weight_.load(g);
  }

  // Applies a gate that is first. Returns the sum of squares; 0 past the row's end.
  __device__ float begin(const Bits& x, const Bits& gate, Group& group) const {
    Row::convert(x, group);
    if (order_ != GateOrder::kNormFirst) apply(gate, group);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) sum = fmaf(group[i], group[i], sum);
    return sum;
  }
  // Applies the norm, then a gate that is last.
  __device__ void finish(int g, const Bits& gate, const Bits& weights, float scale, Group& group) const {
    if (order_ != GateOrder::kGateOnly) {
      Group factors;
      Row::convert(weights, factors);
#pragma unroll
      for (int i = 0; i < kGroupElements; ++i) group[i] *= scale * factors[i];
    }
    if (order_ == GateOrder::kNormFirst) apply(gate, group);
    x_.store(g, group);
  }

 private:
  static __device__ Row make_row(const GroupedGatedNormParams& params, const DeviceRows& rows, int token,
                                 int group) {
    const int64_t begin = token * rows.outer_stride + group * rows.inner_stride;
    return Row({rows.data, begin, 0, 1, rows.element}, 1, params.dim, params.aligned);
  }
  static __device__ void apply(const Bits& gate, Group& group) {
    Group gates;
    Row::convert(gate, gates);
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
  const int thread = static_cast<int>(threadIdx.x), num_threads = params.row_threads;
  const int num_rows = static_cast<int>(blockDim.x) / num_threads;
  const int row_idx = static_cast<int>(blockIdx.x) * num_rows + thread / num_threads;
  const int token = row_idx / params.num_groups;
  const GatedRow<Row> row(params, token, row_idx - token * params.num_groups);
  const int num_groups = num_element_groups(params.dim), first_group = thread % num_threads;
  typename Row::Bits x[kKeptGroups], gate[kKeptGroups], weights[kKeptGroups];
  ptx::griddepcontrol_wait();
  if (row_idx >= params.num_rows) return;
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j) {
    const int g = first_group + j * num_threads;
    if (g >= num_groups) break;
    x[j] = row.load_x(g);
    gate[j] = row.load_gate(g);
    weights[j] = row.load_weights(g);
  }
  Group kept[kKeptGroups];
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j)
    if (first_group + j * num_threads < num_groups) sum += row.begin(x[j], gate[j], kept[j]);
  for (int g = first_group + kKeptGroups * num_threads; g < num_groups; g += num_threads) {
    Group group;
    sum += row.begin(row.load_x(g), row.load_gate(g), group);
  }
  // A CTA with several rows has one warp per row.
  sum = num_threads == 32 ? warp_sum(sum) : cta_sum(sum);
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(params.dim) + params.eps);
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j)
    if (const int g = first_group + j * num_threads; g < num_groups)
      row.finish(g, gate[j], weights[j], scale, kept[j]);
  for (int g = first_group + kKeptGroups * num_threads; g < num_groups; g += num_threads) {
    Group group;
    const typename Row::Bits gates = row.load_gate(g);
    row.begin(row.load_x(g), gates, group);
    row.finish(g, gates, row.load_weights(g), scale, group);
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
