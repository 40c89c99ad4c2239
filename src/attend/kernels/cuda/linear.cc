#include "attend/kernels/cuda/linear.h"

#include "attend/base/error.h"
#include "attend/kernels/cuda/device_rows.h"
#include "attend/kernels/cuda/elementwise.h"
#include "attend/kernels/cuda/few_rows.h"
#include "attend/kernels/cuda/invariant_linear.h"
#include "attend/kernels/cuda/matmul.h"
#include "attend/kernels/cuda/sm90/dense.h"
#include "attend/kernels/cuda/sm90/tall.h"
#include "attend/kernels/cuda/view_params.h"

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

// Tensor maps and cuBLASLt want rows one after another.
void require_rows_apart(const TensorView& x) {
  if (x.shape[0] > 1 && x.strides[0] < x.shape[1])
    fail(ErrorCode::kUnsupported, "x ", x, ": expected rows that do not overlap, so a stride of at least ",
         x.shape[1]);
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

// Sm_90's kernels of tiles, and what is left to the kernel for few rows and to cuBLASLt.
enum class Tiles { kNone, kTall, kEven };

// Which are the fastest, as timed on an H200. Tall tiles norm x themselves, so they have the large layers of
// few rows that want it, and with more the gated ones, where they save SiLU too. Small weights of few rows
// fit into the ring of the kernel for few rows; above 64 rows even tiles win where the weight is small or
// sums are long (down projections), since clusters share those. Heads are cuBLASLt's.
Tiles fastest_tiles(const LinearArgs& args, bool gated) {
  constexpr int64_t kMostRows = 256, kMostRowsOfEvenTiles = 128, kFewRows = 64;
  constexpr int64_t kSmallElements = int64_t{1} << 23, kLargeElements = int64_t{1} << 25;
  constexpr int64_t kMostOutputs = 65536;
  const int64_t num_rows = args.x.shape[0];
  const TensorView& weight = args.weight;
  if (num_rows <= kMaxRowsAnywhere || num_rows > kMostRows || weight.shape[0] > kMostOutputs)
    return Tiles::kNone;
  const int64_t num_elements = weight.shape[0] * weight.shape[1];
  const bool small = num_elements < kSmallElements;
  const bool deep = weight.shape[1] > weight.shape[0];
  if (num_rows <= kFewRows) {
    if (!small) return args.norm.weight.empty() && !gated ? Tiles::kEven : Tiles::kTall;
    return num_rows <= kMaxRowsWithRoom ? Tiles::kNone : Tiles::kEven;
  }
  if (gated && num_elements >= kLargeElements) return Tiles::kTall;
  return num_rows <= kMostRowsOfEvenTiles && (small || deep) ? Tiles::kEven : Tiles::kNone;
}

// Returns false, having done nothing, where tiles are not faster or not taken.
bool multiply_tiles(LinearArgs args, bool gated, Stream& stream) {
  const Tiles tiles = fastest_tiles(args, gated);
  const bool tall = tiles == Tiles::kTall;
  const TensorView x = args.x;
  const InputNorm norm = args.norm;
  const bool norm_before = !norm.weight.empty() && !(tall && sm90::norms_tall_tiles(norm, x));
  if (norm_before) {
    args.x = norm.normed;
    args.norm = {};
  }
  if (tiles == Tiles::kNone || !(tall ? sm90::takes_tall_tiles(args, stream) : sm90::takes(args, stream)))
    return false;
  if (norm_before) normed(norm, x, stream);
  if (tall)
    sm90::tall_tiles(args, gated, stream);
  else
    sm90::dense(args, gated, stream);
  return true;
}

}  // namespace

void linear(const LinearArgs& args, Stream& stream) {
  require_dtype_of_x(args.x, args.weight);
  require_rows_apart(args.x);
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
  require_rows_apart(args.x);
  if (args.batch_invariant || args.out.num_elements() == 0) return false;
  const LinearArgs product{
      .x = args.x, .weight = args.weight, .bias = args.bias, .out = args.out, .norm = args.norm};
  if (multiply_tiles(product, /*gated=*/true, stream)) return true;
  if (!takes_few_rows(args.x, args.weight, args.out)) return false;
  multiply_few_rows(product, /*gated=*/true, stream);
  return true;
}

}  // namespace attend::kernels::cuda
