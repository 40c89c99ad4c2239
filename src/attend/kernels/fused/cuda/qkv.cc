#include "attend/kernels/fused/cuda/qkv.h"

#include <sstream>

#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/common/kernel_choices.h"
#include "attend/kernels/fused/cuda/qkv_kernel.h"
#include "attend/kernels/gemm/cuda/linear.h"
#include "attend/kernels/gemm/cuda/sm80/skinny_gemm.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"
#include "attend/kernels/norm_rope/cuda/elementwise_kernels.h"

namespace attend::kernels::cuda {
namespace {

bool is_quantized(const LinearArgs& args) { return args.weight.format != WeightFormat::kPlain; }

// Returns true if the product, including the norm, is one launch of a skinny GEMM. Kernels exist for bf16 and
// the shared memory of Hopper. Norms with float32 weights have not been tested in them.
bool supports_product(const LinearArgs& args, const Stream& stream) {
  if (sm80::max_skinny_rows(gpu_facts(stream.device).shared_bytes) != sm80::kMaxRowsWithRoom ||
      args.x.shape[0] > kMaxQkvRows || args.x.dtype != DType::kBF16 ||
      (!is_quantized(args) && args.weight.data.dtype != DType::kBF16) || args.out.dtype != DType::kBF16 ||
      args.accumulate || args.batch_invariant)
    return false;
  const GemmProblem problem = gemm_problem(args, /*gated=*/false);
  const GemmRow& row = choose(problem, gpu_facts(stream.device));
  const bool is_skinny = is_quantized(args)
                             ? row.kernel == GemmKernel::kSkinnyQuantized
                             : row.kernel == GemmKernel::kSkinny || row.kernel == GemmKernel::kGemv;
  return is_skinny &&
         (problem.norm == GemmNorm::kNone || (problem.norm_dtype == problem.dtype && row.norms(problem)));
}

KernelChoice make_choice(const LinearArgs& product, const NormRopeArgs& rope) {
  std::ostringstream text;
  text << product.x.shape[0] << " x " << product.x.shape[1] << " -> " << product.out.shape[1] << ", "
       << product.x.dtype;
  if (is_quantized(product)) text << " by " << to_string(product.weight.format);
  text << ", heads of " << rope.q.shape[2];
  return {.op = "qkv_norm_rope_store",
          .problem = text.str(),
          .kernel = is_quantized(product) ? "skinny quantized GEMM with RoPE and store"
                                          : "skinny GEMM with RoPE and store",
          .why = "few rows: bound by reading the weight"};
}

// Returns true if all of every head is rotated, in pairs of groups of features, and heads of q and k are
// either both normalized or both not.
bool supports_heads(const NormRopeArgs& rope) {
  const int64_t half = rope.cos.shape[1], num_groups = half / sm80::kFeatures;
  return !rope.interleaved && !rope.norm_after_rope && !rope.norm_v &&
         rope.q_norm.empty() == rope.k_norm.empty() && 2 * half == rope.q.shape[2] &&
         half % sm80::kFeatures == 0 && half <= kMaxQkvHalf && (num_groups & (num_groups - 1)) == 0;
}

// Returns true if `heads` are the heads of `out` from column `column`.
bool is_part(const TensorView& heads, const TensorView& out, int64_t column, int64_t head_dim) {
  return heads.data == out.slice(1, column, out.shape[1]).data && heads.strides[0] == out.strides[0] &&
         heads.strides[1] == head_dim && heads.shape[2] == head_dim;
}

}  // namespace

bool qkv_norm_rope_store(const LinearArgs& product, const NormRopeArgs& rope, const StoreKvArgs& store,
                         Stream& stream) {
  if (product.out.num_elements() == 0 || !supports_product(product, stream) || !supports_heads(rope))
    return false;
  const int64_t head_dim = rope.q.shape[2];
  const int64_t k_begin = rope.q.shape[1] * head_dim, v_begin = k_begin + rope.k.shape[1] * head_dim;
  if (v_begin + store.v.shape[1] * head_dim != product.out.shape[1] ||
      !is_part(rope.q, product.out, 0, head_dim) || !is_part(rope.k, product.out, k_begin, head_dim) ||
      !is_part(store.v, product.out, v_begin, head_dim))
    return false;
  QkvParams params{.product = sm80::skinny_gemm_params(product, /*gated=*/false),
                   .rope = norm_rope_store_params(rope, store, stream)};
  params.product.head_half = static_cast<int32_t>(head_dim / 2);
  if (!rope.q_norm.empty()) {
    if (is_quantized(product)) return false;
    const int64_t num_heads = rope.q.shape[1] + 2 * rope.k.shape[1];
    params.ctas_per_head =
        choose_ctas_per_head(static_cast<int>(num_heads), params.product.head_half, params.product.num_rows);
    if (params.ctas_per_head == 0) return false;
  }
  if (records_choices()) record_choice(make_choice(product, rope));
  if (is_quantized(product))
    launch_qkv_quantized({params, quantized_weight(product.weight)}, stream.handle);
  else
    launch_qkv(params, stream.handle);
  return true;
}

}  // namespace attend::kernels::cuda
