#include <vector>

#include "attend/base/parallel.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/element.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/metadata/lengths.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"
#include "attend/kernels/norm_rope/rope.h"
#include "attend/kernels/norm_rope/rope_row.h"

namespace attend::kernels {
namespace {

void check_positions(const RopeRowsArgs& args) {
  const RowAngles& angles = args.angles;
  const int64_t num_positions = angles.cos.shape[0];
  for (int32_t r = 0; r < args.num_reqs; ++r) {
    const int32_t num_tokens = get_length(args.seqlens, r), first = get_length(angles.first_position, r);
    if (num_tokens == 0) continue;
    const int64_t last = angles.same_position ? first : int64_t{first} + num_tokens - 1;
    require(first >= 0 && last < num_positions, "request ", r, " has positions ", first, " to ", last,
            ": cos and sin have ", num_positions);
  }
}

// Row of a head in float32, rotated if there are angles.
void rotate_row(const RopeRowsArgs& args, int32_t request, int32_t token, int32_t head, std::vector<float>& x,
                std::vector<float>& row) {
  const RowAngles& angles = args.angles;
  const int64_t from = reference::offset(args.from, token, head);
  for (size_t d = 0; d < x.size(); ++d)
    x[d] = static_cast<float>(reference::load(args.from, from + static_cast<int64_t>(d)));
  row = x;
  if (angles.cos.empty() || request == args.num_reqs) return;
  const auto num_pairs = static_cast<int32_t>(angles.cos.shape[1]);
  const int32_t position =
      row_position(args.seqlens, angles.first_position, angles.same_position, request, token);
  for (int32_t d = 0; d < 2 * num_pairs; ++d) {
    const RopePair pair = rope_pair(d, num_pairs, angles.interleaved);
    const auto cos = reference::load(angles.cos, reference::offset(angles.cos, position, pair.angle)),
               sin = reference::load(angles.sin, reference::offset(angles.sin, position, pair.angle));
    row[static_cast<size_t>(d)] =
        rotated_element(x[static_cast<size_t>(d)], x[static_cast<size_t>(pair.other)], pair,
                        static_cast<float>(cos), static_cast<float>(sin));
  }
}

void apply_on_host(const RopeRowsArgs& args) {
  if (!args.angles.cos.empty()) check_positions(args);
  const int64_t num_heads = args.from.shape[1], head_dim = args.from.shape[2];
  parallel_for_rows(args.from.shape[0], num_heads * head_dim, [&](int64_t row_idx) {
    const auto token = static_cast<int32_t>(row_idx);
    const int32_t request = find_request(args.seqlens, args.num_reqs, token);
    std::vector<float> x(static_cast<size_t>(head_dim)), row;
    for (int32_t head = 0; head < num_heads; ++head) {
      rotate_row(args, request, token, head, x, row);
      const float scale = request == args.num_reqs ? 1.0f : row_factor(args.scales, request, head);
      const int64_t to = reference::offset(args.to, token, head);
      for (size_t d = 0; d < row.size(); ++d)
        reference::store(args.to, to + static_cast<int64_t>(d), row[d] * scale);
    }
  });
}

}  // namespace

void check(const RopeRowsArgs& args) {
  require_rank("from", args.from, 3);
  require_shape("to", args.to, {args.from.shape[0], args.from.shape[1], args.from.shape[2]});
  require_activation("from", args.from);
  require_activation("to", args.to);
  for (const RowScale& scale : {args.scales.first, args.scales.second})
    require(scale.heads_per_scale > 0, "heads_per_scale ", scale.heads_per_scale, ": expected above 0");
  const RowAngles& angles = args.angles;
  if (angles.cos.empty()) return;
  require_rank("cos", angles.cos, 2);
  require_shape("sin", angles.sin, {angles.cos.shape[0], angles.cos.shape[1]});
  require_activation("cos", angles.cos);
  require_activation("sin", angles.sin);
  require(angles.cos.dtype == angles.sin.dtype, "cos is ", angles.cos.dtype, ", sin is ", angles.sin.dtype,
          ": expected the same");
  require(2 * angles.cos.shape[1] <= args.from.shape[2], "cos ", angles.cos, ": expected at most ",
          args.from.shape[2] / 2, " pairs, half of the head dim of ", args.from);
  require(angles.cos.shape[0] > 0, "cos ", angles.cos, ": expected a row for each position");
}

void apply_rope_rows(const RopeRowsArgs& args, Stream& stream) {
  check(args);
  if (const OnGpu gpu(stream); gpu) return cuda::apply_rope_rows(args, stream);
  apply_on_host(args);
}

}  // namespace attend::kernels
