#include <algorithm>
#include <cmath>

#include "attend/base/parallel.h"
#include "attend/kernels/attention/cpu/attention.h"
#include "attend/kernels/common/cpu/row_kernels.h"

namespace attend::kernels::cpu {
namespace {

// Elements per piece in which rows are merged, on the stack.
constexpr int kPiece = 256;

// Loads an LSE. An empty part has LSE -inf; other libraries mark it with +inf.
float load_lse(const TensorView& lse, int64_t token, int64_t head) {
  const float value = static_cast<const float*>(lse.data)[token * lse.strides[0] + head * lse.strides[1]];
  return std::isinf(value) ? kEmptyLse : value;
}

void write_lse(const TensorView& lse, int64_t token, int64_t head, float value) {
  if (!lse.empty()) static_cast<float*>(lse.data)[token * lse.strides[0] + head * lse.strides[1]] = value;
}

// Address of element `first` of row [token, head].
char* row_piece(const TensorView& rows, int64_t token, int64_t head, int64_t first) {
  const int64_t offset = token * rows.strides[0] + head * rows.strides[1] + first;
  return static_cast<char*>(rows.data) + offset * static_cast<int64_t>(size_of(rows.dtype));
}

// LSE of a running merge, with the scales of each part and of the sum.
struct RunningLse {
  float lse = kEmptyLse;

  struct Scales {
    float sum, part, inverse_total;
  };
  // Adds a part that is not empty.
  Scales add(float part) {
    const float max_lse = std::max(lse, part);
    const float scale_sum = std::exp(lse - max_lse), scale_part = std::exp(part - max_lse);
    const float total = scale_sum + scale_part;
    lse = max_lse + std::log(total);
    return {scale_sum, scale_part, 1.0f / total};
  }
};

void merge_row(const MergeArgs& args, const RowKernels& kernels, int64_t token, int64_t head) {
  const float lse_a = load_lse(args.lse_a, token, head), lse_b = load_lse(args.lse_b, token, head);
  RunningLse running;
  RunningLse::Scales a{}, b{};
  if (lse_a != kEmptyLse) a = running.add(lse_a);
  if (lse_b != kEmptyLse) b = running.add(lse_b);
  for (int64_t first = 0; first < args.out.shape[2]; first += kPiece) {
    const auto n = static_cast<int>(std::min<int64_t>(kPiece, args.out.shape[2] - first));
    float sum[kPiece] = {};
    // The output of an empty part is not read: it may have any content.
    if (lse_a != kEmptyLse)
      kernels.blend(sum, a.sum, row_piece(args.out_a, token, head, first), args.out_a.dtype, a.part,
                    a.inverse_total, n);
    if (lse_b != kEmptyLse)
      kernels.blend(sum, b.sum, row_piece(args.out_b, token, head, first), args.out_b.dtype, b.part,
                    b.inverse_total, n);
    kernels.write(sum, 1.0f, row_piece(args.out, token, head, first), args.out.dtype, n);
  }
  write_lse(args.lse, token, head, running.lse);
}

void merge_splits_row(const MergeSplitsArgs& args, const RowKernels& kernels, int64_t token, int64_t head) {
  float lse = kEmptyLse;
  for (int64_t first = 0; first < args.out.shape[2]; first += kPiece) {
    const auto n = static_cast<int>(std::min<int64_t>(kPiece, args.out.shape[2] - first));
    float sum[kPiece] = {};
    RunningLse running;
    for (int64_t split = 0; split < args.partial_out.shape[0]; ++split) {
      const float part = load_lse(args.partial_lse[split], token, head);
      if (part == kEmptyLse) continue;
      const RunningLse::Scales scales = running.add(part);
      kernels.blend(sum, scales.sum, row_piece(args.partial_out[split], token, head, first), DType::kF32,
                    scales.part, scales.inverse_total, n);
    }
    lse = running.lse;
    const bool has_sink = !args.sinks.empty() && lse != kEmptyLse;
    const float share =
        has_sink ? 1.0f / (1.0f + std::exp(args.sinks[static_cast<size_t>(head)] - lse)) : 1.0f;
    kernels.write(sum, share, row_piece(args.out, token, head, first), args.out.dtype, n);
  }
  write_lse(args.lse, token, head, lse);
}

}  // namespace

void merge(const MergeArgs& args, Isa isa) {
  const RowKernels kernels = row_kernels(isa);
  const int64_t num_heads = args.out.shape[1];
  parallel_for_rows(args.out.shape[0], num_heads * args.out.shape[2], [&](int64_t token) {
    for (int64_t head = 0; head < num_heads; ++head) merge_row(args, kernels, token, head);
  });
}

void merge_splits(const MergeSplitsArgs& args, Isa isa) {
  const RowKernels kernels = row_kernels(isa);
  const int64_t num_heads = args.out.shape[1];
  parallel_for_rows(args.out.shape[0], args.partial_out.shape[0] * num_heads * args.out.shape[2],
                    [&](int64_t token) {
                      for (int64_t head = 0; head < num_heads; ++head)
                        merge_splits_row(args, kernels, token, head);
                    });
}

}  // namespace attend::kernels::cpu
