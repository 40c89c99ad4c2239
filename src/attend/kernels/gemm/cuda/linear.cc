#include "attend/kernels/gemm/cuda/linear.h"

#include "attend/base/error.h"
#include "attend/kernels/common/cuda/device_rows.h"
#include "attend/kernels/common/cuda/view_params.h"
#include "attend/kernels/gemm/cuda/invariant_linear.h"
#include "attend/kernels/gemm/cuda/matmul.h"
#include "attend/kernels/gemm/cuda/sm80/few_rows.h"
#include "attend/kernels/gemm/cuda/sm90/dense.h"
#include "attend/kernels/gemm/cuda/sm90/tall.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"
#include "attend/kernels/norm_rope/cuda/elementwise_kernels.h"

namespace attend::kernels::cuda {
namespace {

// out[i] (+)= bias.
void put_bias(const TensorView& bias, const TensorView& out, bool add, Stream& stream) {
  const int64_t num_columns = out.shape[1];
  const DeviceVector from = device_vector(bias);
  launch_copy_rows({.from = {const_cast<void*>(from.data), 0, 0, 1, from.element},
                    .out = device_rows(out),
                    .rows = nullptr,
                    .num_rows = static_cast<int32_t>(out.shape[0]),
                    .num_columns = static_cast<int32_t>(num_columns),
                    .aligned = num_columns % 8 == 0 && rows_aligned({&bias, &out}),
                    .add = add},
                   stream.handle);
}

void require_dtype_of_x(const TensorView& x, const TensorView& weight) {
  if (weight.dtype != x.dtype)
    fail(ErrorCode::kUnsupported, "weight ", weight, ": expected the dtype of x, ", x.dtype);
}

// What is multiplied, once a norm has run that the product does not.
TensorView normed(const InputNorm& norm, const TensorView& x, Stream& stream) {
  if (norm.weight.empty()) return x;
  rms_norm(x, norm.weight, norm.eps, norm.normed, stream, /*weight_offset=*/0.0f);
  return norm.normed;
}

void multiply_few_rows(LinearArgs args, bool gated, Stream& stream) {
  if (!args.norm.weight.empty() && !norms_few_rows(args.norm, args.x)) {
    args.x = normed(args.norm, args.x, stream);
    args.norm = {};
  }
  launch_few_rows(few_rows_params(args, gated), args.x.dtype, stream.handle);
}

constexpr int64_t kMostRowsOfAnyLayer = 64;  // that sm_90's tiles take

// Whether sm_90's tiles are faster than the kernel for few rows and cuBLASLt, as timed on an H200. Small
// weights of few rows fit into the ring of the former; above 64 rows tiles win where the weight is small, and
// near the 128 that they multiply where sums are long (down projections), since clusters share those.
bool tiles_are_faster(int64_t num_rows, const TensorView& weight) {
  constexpr int64_t kMostRows = 128, kLeastDeepRows = 97;
  constexpr int64_t kSmallElements = int64_t{1} << 23;
  if (num_rows <= kMaxRowsAnywhere || num_rows > kMostRows) return false;
  const bool small = weight.shape[0] * weight.shape[1] < kSmallElements;
  const bool deep = weight.shape[1] > weight.shape[0];
  if (num_rows <= kMaxRowsWithRoom) return !small;
  return num_rows <= kMostRowsOfAnyLayer || small || (deep && num_rows >= kLeastDeepRows);
}

// Returns false, having done nothing, where tiles are not faster or not taken.
bool multiply_tiles(LinearArgs args, bool gated, Stream& stream) {
  // Of more rows, every CTA's share of reading the squares costs more than a norm's launch.
  constexpr int64_t kMostRowsOfBegunNorm = 32;
  const TensorView x = args.x;
  if (x.shape[0] > kMostRowsOfBegunNorm) args.next_norm = nullptr;
  if (!args.norm.weight.empty()) args.x = args.norm.normed;
  if (!tiles_are_faster(x.shape[0], args.weight) || !sm90::takes(args, stream)) return false;
  if (!args.norm.weight.empty() && !args.norm.begun) {
    args.x = normed(args.norm, x, stream);
    args.norm = {};
  }
  sm90::dense(args, gated, stream);
  return true;
}

// Whether tall tiles are faster than other tiles and cuBLASLt with SiLU as a kernel of its own, as timed on
// an H200: for more rows than tiles take of any layer, as long as they come out even over the SMs. A pair of
// CTAs multiplies 256 rows however few it has, which pays from three quarters of them on.
bool tall_tiles_are_faster(int64_t num_rows, const TensorView& weight, const Stream& stream) {
  constexpr double kLeastEvenness = 0.8;
  constexpr int64_t kLeastRowsOfPairs = 192;
  if (num_rows <= kMostRowsOfAnyLayer || num_rows > sm90::kMaxGatedMlpRows) return false;
  if (num_rows > sm90::kGatedMlpRows && num_rows < kLeastRowsOfPairs) return false;
  return sm90::tall_tiles_evenness(weight.shape[0], num_rows, stream) >= kLeastEvenness;
}

// As multiply_tiles(), gated.
bool multiply_tall_tiles(LinearArgs args, Stream& stream) {
  const TensorView x = args.x;
  if (!args.norm.weight.empty()) args.x = args.norm.normed;
  if (!tall_tiles_are_faster(x.shape[0], args.weight, stream) || !sm90::takes_tall_tiles(args, stream))
    return false;
  args.x = normed(args.norm, x, stream);
  sm90::tall_tiles(args, stream);
  return true;
}

}  // namespace

void linear(const LinearArgs& args, Stream& stream) {
  require_dtype_of_x(args.x, args.weight);
  if (args.out.num_elements() == 0) return;
  if (args.batch_invariant) {
    LinearArgs invariant = args;
    invariant.x = normed(args.norm, args.x, stream);
    invariant.norm = {};
    return invariant_linear(invariant, stream);
  }
  if (multiply_tiles(args, /*gated=*/false, stream)) return;
  if (takes_few_rows(args.x, args.weight, args.out)) return multiply_few_rows(args, /*gated=*/false, stream);
  const TensorView x = normed(args.norm, args.x, stream);
  if (!args.bias.empty()) put_bias(args.bias, args.out, /*add=*/args.accumulate, stream);
  matmul(x, args.weight, args.out, args.accumulate || !args.bias.empty(), stream);
}

bool gated_linear(const GatedLinearArgs& args, Stream& stream) {
  require_dtype_of_x(args.x, args.weight);
  if (args.batch_invariant || args.out.num_elements() == 0) return false;
  const LinearArgs product{
      .x = args.x, .weight = args.weight, .bias = args.bias, .out = args.out, .norm = args.norm};
  if (multiply_tall_tiles(product, stream) || multiply_tiles(product, /*gated=*/true, stream)) return true;
  if (!takes_few_rows(args.x, args.weight, args.out)) return false;
  multiply_few_rows(product, /*gated=*/true, stream);
  return true;
}

}  // namespace attend::kernels::cuda
