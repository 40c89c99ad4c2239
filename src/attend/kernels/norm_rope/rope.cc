#include "attend/kernels/norm_rope/rope.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <tuple>
#include <utility>

#include "attend/base/error.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/norm_rope/check_rows.h"
#include "attend/kernels/norm_rope/cpu/elementwise.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"

namespace attend::kernels {

namespace {

// Checks `heads`, the angles they are rotated by, and the positions of their tokens.
void require_angles(std::string_view name, const TensorView& heads, View<const int32_t> positions,
                    const TensorView& cos, const TensorView& sin, const Stream& stream) {
  require_rank("cos", cos, 2);
  require_shape("sin", sin, {cos.shape[0], cos.shape[1]});
  for (const auto& [table_name, table] : {std::pair{"cos", &cos}, std::pair{"sin", &sin}}) {
    require_dtype(table_name, *table, DType::kF32);
    require_unit_stride(table_name, *table);
    require_on(stream, table_name, *table);
  }
  require(2 * cos.shape[1] <= heads.shape[2], "cos ", cos, ": rotates ", 2 * cos.shape[1],
          " elements, heads of ", name, " have ", heads.shape[2]);
  require_indices(stream, "positions", positions, heads.shape[0], cos.shape[0], "cos");
}

constexpr int64_t kMaxUnitNorm = 512;

// Returns a zero weight for a norm without weights, which uses an offset of 1.
TensorView no_weight(int64_t dim) {
  static constexpr float kZeros[kMaxUnitNorm] = {};
  return TensorView::contiguous(const_cast<float*>(kZeros), DType::kF32, {dim});
}

void check_heads_like(const TensorView& out, const TensorView& v, const Stream& stream) {
  require_shape("v_out", out, {v.shape[0], v.shape[1], v.shape[2]});
  require_activation_on(stream, "v_out", out);
}

}  // namespace

void rope(const TensorView& x, View<const int32_t> positions, const TensorView& cos, const TensorView& sin,
          Stream& stream, bool interleaved) {
  require_rank("x", x, 3);
  require_activation_on(stream, "x", x);
  require_angles("x", x, positions, cos, sin, stream);
  if (const OnGpu gpu(stream); gpu)
    return cuda::norm_rope(
        {.q = x, .positions = positions, .cos = cos, .sin = sin, .interleaved = interleaved}, stream);
  cpu::rope(x, positions, cos, sin, interleaved, cpu::detect_isa());
}

void check(const NormRopeArgs& args, const Stream& stream) {
  const auto check_heads = [&](std::string_view name, const TensorView& heads, const TensorView& weight) {
    require_shape(name, heads, {args.q.shape[0], heads.shape[1], args.q.shape[2]});
    require_activation_on(stream, name, heads);
    if (!weight.empty()) require_norm_weight(weight, args.q.shape[2], stream);
  };
  check_heads("q", args.q, args.q_norm);
  if (!args.k.empty()) check_heads("k", args.k, args.k_norm);
  require(!args.norm_after_rope || args.q.shape[2] <= kMaxUnitNorm, "norm_after_rope: heads of ",
          args.q.shape[2], ": expected at most ", kMaxUnitNorm);
  if (!args.cos.empty()) require_angles("q", args.q, args.positions, args.cos, args.sin, stream);
}

void norm_rope(const NormRopeArgs& args, Stream& stream) {
  check(args, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::norm_rope(args, stream);
  const auto norm_and_rotate = [&](const TensorView& heads, const TensorView& weight) {
    const auto norm = [&] {
      const bool has_weight = !weight.empty();
      cpu::rms_norm(heads, has_weight ? weight : no_weight(heads.shape[2]), args.eps, heads,
                    has_weight ? 0.0f : 1.0f, cpu::detect_isa());
    };
    if (!weight.empty() && !args.norm_after_rope) norm();
    if (!args.cos.empty())
      cpu::rope(heads, args.positions, args.cos, args.sin, args.interleaved, cpu::detect_isa());
    if (args.norm_after_rope) norm();
  };
  norm_and_rotate(args.q, args.q_norm);
  if (!args.k.empty()) norm_and_rotate(args.k, args.k_norm);
}

void dynamic_angles(const DynamicAnglesArgs& args, Stream& stream) {
  const OnGpu gpu(stream);
  if (!gpu) fail(ErrorCode::kUnsupported, "dynamic_angles on ", stream.device, ": supported on GPUs only");
  require(args.cu_seqlen_q.size() == args.prompt_lens.size() + 1, "cu_seqlen_q of ", args.cu_seqlen_q.size(),
          ": expected one more than the ", args.prompt_lens.size(), " requests of prompt_lens");
  require(args.original_length > 0, "original_length ", args.original_length, ": expected at least 1");
  require_rank("cos", args.cos, 2);
  for (const auto& [name, angles] : {std::pair{"cos", &args.cos}, {"sin", &args.sin}}) {
    require_shape(name, *angles, {std::ssize(args.positions), args.cos.shape[1]});
    require_dtype(name, *angles, DType::kF32);
    require_on(stream, name, *angles);
    require(angles->is_contiguous(), name, " ", *angles, ": expected a contiguous tensor");
  }
  cuda::dynamic_angles(args, stream);
}

void axis_angles(const AxisAnglesArgs& args, Stream& stream) {
  const int64_t num_tokens = args.cos.shape[0], num_pairs = std::ssize(args.pair_axes);
  constexpr int64_t kMaxPairs = 256;
  require(num_pairs <= kMaxPairs, "pair_axes of ", num_pairs, " pairs: expected at most ", kMaxPairs);
  const int64_t num_positions = args.table_cos.shape[0];
  for (const auto& [name, angles, num_rows] : {std::tuple("cos", &args.cos, num_tokens),
                                               {"sin", &args.sin, num_tokens},
                                               {"table_cos", &args.table_cos, num_positions},
                                               {"table_sin", &args.table_sin, num_positions}}) {
    require_shape(name, *angles, {num_rows, num_pairs});
    require_dtype(name, *angles, DType::kF32);
    require_on(stream, name, *angles);
    require(angles->is_contiguous(), name, " ", *angles, ": expected a contiguous tensor");
  }
  if (num_tokens == 0) return;
  const int64_t num_axes = std::ssize(args.positions) / num_tokens;
  require(std::ssize(args.positions) == num_axes * num_tokens, "positions: ", args.positions.size(),
          ": expected as many for each axis as the ", num_tokens, " rows of cos");
  for (const uint8_t axis : args.pair_axes)
    require(axis < num_axes, "pair_axes: ", int{axis}, ": positions have ", num_axes, " axes");
  if (const OnGpu gpu(stream); gpu) return cuda::axis_angles(args, stream);
  for (const int32_t position : args.positions)
    require(position >= 0 && position < num_positions, "position ", position, ": expected 0 to ",
            num_positions - 1);
  for (int64_t token = 0; token < num_tokens; ++token) {
    float *const cos = args.cos[token].as<float>(), *const sin = args.sin[token].as<float>();
    for (int64_t pair = 0; pair < num_pairs; ++pair) {
      const int64_t axis = args.pair_axes[static_cast<size_t>(pair)];
      const int64_t position = args.positions[static_cast<size_t>(axis * num_tokens + token)];
      cos[pair] = args.table_cos[position].as<const float>()[pair];
      sin[pair] = args.table_sin[position].as<const float>()[pair];
    }
  }
}

void scale_by_position(const TensorView& q, View<const int32_t> positions,
                       const QueryTemperature& temperature, Stream& stream) {
  require_rank("q", q, 3);
  require_activation_on(stream, "q", q);
  require(std::ssize(positions) == q.shape[0], "positions of ", positions.size(), " tokens: expected ",
          q.shape[0]);
  require(temperature.slope > 0.0f && temperature.floor_scale > 0.0f, "temperature of slope ",
          temperature.slope, " and floor_scale ", temperature.floor_scale, ": expected both above 0");
  if (q.num_elements() == 0) return;
  if (const OnGpu gpu(stream); gpu) return cuda::scale_by_position(q, positions, temperature, stream);
  for (int64_t token = 0; token < q.shape[0]; ++token) {
    const int32_t position = positions[static_cast<size_t>(token)] + temperature.first;
    const float steps = std::floor(static_cast<float>(position) / temperature.floor_scale);
    const float scale = 1.0f + temperature.slope * std::log1p(steps);
    for (int64_t head = 0; head < q.shape[1]; ++head) {
      float* const row = q[token][head].as<float>();
      for (int64_t i = 0; i < q.shape[2]; ++i) row[i] *= scale;
    }
  }
}

void rope_rows_by_length(const RopeRowsByLengthArgs& args, Stream& stream) {
  require(args.cu_seqlen_q.size() == args.prompt_lens.size() + 1, "cu_seqlen_q of ", args.cu_seqlen_q.size(),
          ": expected one more than the ", args.prompt_lens.size(), " requests of prompt_lens");
  require(args.rows.size() == args.positions.size(), "rows of ", args.rows.size(), " tokens: expected ",
          args.positions.size());
  if (const OnGpu gpu(stream); gpu) return cuda::rope_rows_by_length(args, stream);
  std::ranges::fill(args.rows, 0);
  for (size_t r = 0; r < args.prompt_lens.size(); ++r)
    for (int32_t token = args.cu_seqlen_q[r]; token < args.cu_seqlen_q[r + 1]; ++token) {
      const auto t = static_cast<size_t>(token);
      const int32_t length = std::max(args.prompt_lens[r], args.positions[t] + 1);
      args.rows[t] = args.positions[t] + (length > args.original_length ? args.num_positions : 0);
    }
}

void norm_rope_store(const NormRopeArgs& rope, const StoreKvArgs& store, Stream& stream) {
  require(rope.k.data == store.k.data, "norm_rope_store: expected the same k in rope and store");
  require(!rope.norm_v || store.v.shape[2] <= kMaxUnitNorm, "norm_v: heads of ", store.v.shape[2],
          ": expected at most ", kMaxUnitNorm);
  if (const OnGpu gpu(stream); gpu) {
    check(rope, stream);
    check(store);
    return cuda::norm_rope_store(rope, store, stream);
  }
  // The norm of v runs first, since v may be k.
  StoreKvArgs normalized = store;
  if (rope.norm_v) {
    normalized.v = rope.v_out;
    check_heads_like(normalized.v, store.v, stream);
    cpu::rms_norm(store.v, no_weight(store.v.shape[2]), rope.eps, normalized.v, 1.0f, cpu::detect_isa());
  }
  norm_rope(rope, stream);
  store_kv(normalized, stream);
}

}  // namespace attend::kernels
