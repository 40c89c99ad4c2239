#include "attend/kernels/norm_rope/rope.h"

#include <string_view>
#include <utility>

#include "attend/base/error.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/norm_rope/check_rows.h"
#include "attend/kernels/norm_rope/cpu/elementwise.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"

namespace attend::kernels {
namespace {

// `heads` of this name, the angles they are rotated by, and which of these each token takes.
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
          " elements, the heads of ", name, " have ", heads.shape[2]);
  require_indices(stream, "positions", positions, heads.shape[0], cos.shape[0], "cos");
}

}  // namespace

void rope(const TensorView& x, View<const int32_t> positions, const TensorView& cos, const TensorView& sin,
          Stream& stream) {
  require_rank("x", x, 3);
  require_activation_of(stream, "x", x);
  require_angles("x", x, positions, cos, sin, stream);
  if (const OnGpu gpu(stream); gpu)
    return cuda::norm_rope({.q = x, .positions = positions, .cos = cos, .sin = sin}, stream);
  cpu::rope(x, positions, cos, sin, cpu::detect_isa());
}

void check(const NormRopeArgs& args, const Stream& stream) {
  require_rank("q", args.q, 3);
  const auto check_heads = [&](std::string_view name, const TensorView& heads, const TensorView& weight) {
    require_rank(name, heads, 3);
    require_shape(name, heads, {args.q.shape[0], heads.shape[1], args.q.shape[2]});
    require_activation_of(stream, name, heads);
    if (!weight.empty()) require_norm_weight(weight, args.q.shape[2], stream);
  };
  check_heads("q", args.q, args.q_norm);
  if (!args.k.empty()) check_heads("k", args.k, args.k_norm);
  require_angles("q", args.q, args.positions, args.cos, args.sin, stream);
}

void norm_rope(const NormRopeArgs& args, Stream& stream) {
  check(args, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::norm_rope(args, stream);
  const auto norm_and_rotate = [&](const TensorView& heads, const TensorView& weight) {
    if (!weight.empty()) cpu::rms_norm(heads, weight, args.eps, heads, 0.0f, cpu::detect_isa());
    cpu::rope(heads, args.positions, args.cos, args.sin, cpu::detect_isa());
  };
  norm_and_rotate(args.q, args.q_norm);
  if (!args.k.empty()) norm_and_rotate(args.k, args.k_norm);
}

void dynamic_angles(const DynamicAnglesArgs& args, Stream& stream) {
  const OnGpu gpu(stream);
  if (!gpu) fail(ErrorCode::kUnsupported, "dynamic_angles on ", stream.device, ": for GPUs");
  require(args.cu_seqlen_q.size() == args.prompt_lens.size() + 1, "cu_seqlen_q of ", args.cu_seqlen_q.size(),
          ": expected one more than the ", args.prompt_lens.size(), " requests of prompt_lens");
  require(args.original_length > 0, "original_length ", args.original_length, ": at least 1");
  require_rank("cos", args.cos, 2);
  for (const auto& [name, angles] : {std::pair{"cos", &args.cos}, {"sin", &args.sin}}) {
    require_shape(name, *angles, {std::ssize(args.positions), args.cos.shape[1]});
    require_dtype(name, *angles, DType::kF32);
    require_on(stream, name, *angles);
    require(angles->is_contiguous(), name, " ", *angles, ": expected a contiguous tensor");
  }
  cuda::dynamic_angles(args, stream);
}

}  // namespace attend::kernels
