// RoPE of rows with any strides and dtypes, interleaved or by halves.
//
//   tile        1 token x 1 head per warp; lane l has elements l, l + 32, ..., up to 256
//   warps       4, all alike
//   registers   40
//   shared      none
//   bytes       rows read and written once, cos and sin from L2
//   bound       memory
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"
#include "attend/kernels/norm_rope/rope_row.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kWarps = 4;

// [num_positions, num_pairs]; data null: none.
struct Angles {
  const void* data;
  int64_t stride;
};

struct RopeRowsParams {
  TokenRows from;
  OutRows to;
  Element from_element, to_element, angle_element;
  int32_t num_tokens, num_heads, head_dim, num_reqs;
  Lengths seqlens, first_position;
  Angles cos, sin;
  int32_t num_positions, num_pairs;
  bool interleaved, same_position;
  RowScales scales;
};

// One warp per token and head. A lane keeps its elements until all are read, since `to` may be `from`.
template <int kElements>
__global__ void __launch_bounds__(32 * kWarps)
    rope_rows_kernel(const __grid_constant__ RopeRowsParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int token = static_cast<int>(row / params.num_heads), head = static_cast<int>(row % params.num_heads);
  if (token >= params.num_tokens) return;
  const int request = find_request(params.seqlens, params.num_reqs, token);
  const bool is_padding = request >= params.num_reqs;
  const int64_t from = token * params.from.token_stride + head * params.from.head_stride;
  const int num_pairs = is_padding ? 0 : params.num_pairs;
  int64_t position = 0;
  if (num_pairs > 0) {
    const int position_at =
        row_position(params.seqlens, params.first_position, params.same_position, request, token);
    position = min(max(position_at, 0), params.num_positions - 1);
  }
  const float scale = is_padding ? 1.0f : row_factor(params.scales, request, head);
  float values[kElements];
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    const int d = e * 32 + lane;
    if (d >= params.head_dim) break;
    values[e] = load_element(params.from.data, from + d, params.from_element);
    if (d >= 2 * num_pairs) continue;
    const RopePair pair = rope_pair(d, num_pairs, params.interleaved);
    values[e] = rotated_element(
        values[e], load_element(params.from.data, from + pair.other, params.from_element), pair,
        load_element(params.cos.data, position * params.cos.stride + pair.angle, params.angle_element),
        load_element(params.sin.data, position * params.sin.stride + pair.angle, params.angle_element));
  }
  __syncwarp();
  const int64_t to = token * params.to.token_stride + head * params.to.head_stride;
#pragma unroll
  for (int e = 0; e < kElements; ++e)
    if (e * 32 + lane < params.head_dim)
      store_element(params.to.data, to + e * 32 + lane, params.to_element, values[e] * scale);
}

}  // namespace

void apply_rope_rows(const RopeRowsArgs& args, Stream& stream) {
  require_on_device("from", args.from, stream);
  require_on_device("to", args.to, stream);
  require_on_device("cos", args.angles.cos, stream);
  require_on_device("sin", args.angles.sin, stream);
  constexpr int64_t kMaxHeadDim = 256;
  const RowAngles& angles = args.angles;
  if (args.from.shape[2] > kMaxHeadDim)
    fail(ErrorCode::kUnsupported, "apply_rope_rows: head dim ", args.from.shape[2], ": GPUs support at most ",
         kMaxHeadDim);
  const bool rotates = !angles.cos.empty();
  const RopeRowsParams params{.from = token_rows(args.from),
                              .to = out_rows(args.to),
                              .from_element = to_element_type(args.from.dtype),
                              .to_element = to_element_type(args.to.dtype),
                              .angle_element = rotates ? to_element_type(angles.cos.dtype) : Element::kF32,
                              .num_tokens = static_cast<int32_t>(args.from.shape[0]),
                              .num_heads = static_cast<int32_t>(args.from.shape[1]),
                              .head_dim = static_cast<int32_t>(args.from.shape[2]),
                              .num_reqs = args.num_reqs,
                              .seqlens = args.seqlens,
                              .first_position = angles.first_position,
                              .cos = {angles.cos.data, angles.cos.strides[0]},
                              .sin = {angles.sin.data, angles.sin.strides[0]},
                              .num_positions = static_cast<int32_t>(angles.cos.shape[0]),
                              .num_pairs = rotates ? static_cast<int32_t>(angles.cos.shape[1]) : 0,
                              .interleaved = angles.interleaved,
                              .same_position = angles.same_position,
                              .scales = args.scales};
  const int64_t num_rows = args.from.shape[0] * args.from.shape[1];
  if (num_rows == 0) return;
  launch_dependent<RopeRowsParams>(rope_rows_kernel<kMaxHeadDim / 32>,
                                   static_cast<unsigned>((num_rows + kWarps - 1) / kWarps), 32 * kWarps, 0,
                                   stream.handle, params, "rope rows");
}

}  // namespace attend::kernels::cuda
