#include <algorithm>
#include <cmath>

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/common/element.h"

namespace attend::kernels::reference {
namespace {

// Returns exp(lse - max_lse), 0 for an empty part.
double merge_scale(double lse, double max_lse) { return lse == kEmptyLse ? 0.0 : std::exp(lse - max_lse); }

// FlashAttention marks empty rows with +inf, attend with -inf; both denote a row without keys.
double normalize_empty_lse(double lse) { return std::isinf(lse) ? double{kEmptyLse} : lse; }

}  // namespace

void merge(const MergeArgs& args) {
  check(args);
  for (int64_t token = 0; token < args.out.shape[0]; ++token) {
    for (int64_t head = 0; head < args.out.shape[1]; ++head) {
      const double a = normalize_empty_lse(load(args.lse_a, offset(args.lse_a, token, head)));
      const double b = normalize_empty_lse(load(args.lse_b, offset(args.lse_b, token, head)));
      const double max_lse = std::max(a, b);
      const double scale_a = merge_scale(a, max_lse), scale_b = merge_scale(b, max_lse);
      const double sum = scale_a + scale_b;
      for (int64_t d = 0; d < args.out.shape[2]; ++d) {
        // The output of an empty part is not read: it may have any content.
        const double part_a =
            scale_a == 0.0 ? 0.0 : scale_a * load(args.out_a, offset(args.out_a, token, head, d));
        const double part_b =
            scale_b == 0.0 ? 0.0 : scale_b * load(args.out_b, offset(args.out_b, token, head, d));
        store(args.out, offset(args.out, token, head, d), sum == 0.0 ? 0.0 : (part_a + part_b) / sum);
      }
      if (!args.lse.empty())
        store(args.lse, offset(args.lse, token, head), sum == 0.0 ? kEmptyLse : max_lse + std::log(sum));
    }
  }
}

void merge_splits(const MergeSplitsArgs& args) {
  check(args);
  const int64_t num_splits = args.partial_out.shape[0];
  for (int64_t token = 0; token < args.out.shape[0]; ++token) {
    for (int64_t head = 0; head < args.out.shape[1]; ++head) {
      const auto load_lse = [&](int64_t split) {
        return normalize_empty_lse(load(args.partial_lse, offset(args.partial_lse, split, token, head)));
      };
      double max_lse = kEmptyLse;
      for (int64_t split = 0; split < num_splits; ++split) max_lse = std::max(max_lse, load_lse(split));
      double sum = 0.0;
      for (int64_t split = 0; split < num_splits; ++split) sum += merge_scale(load_lse(split), max_lse);
      const double sink =
          args.sinks.empty() || sum == 0.0
              ? 0.0
              : std::exp(static_cast<double>(args.sinks[static_cast<size_t>(head)]) - max_lse);
      for (int64_t d = 0; d < args.out.shape[2]; ++d) {
        double total = 0.0;
        for (int64_t split = 0; split < num_splits; ++split) {
          const double scale = merge_scale(load_lse(split), max_lse);
          if (scale != 0.0)
            total += scale * load(args.partial_out, offset(args.partial_out, split, token, head, d));
        }
        store(args.out, offset(args.out, token, head, d), sum == 0.0 ? 0.0 : total / (sum + sink));
      }
      if (!args.lse.empty())
        store(args.lse, offset(args.lse, token, head), sum == 0.0 ? kEmptyLse : max_lse + std::log(sum));
    }
  }
}

}  // namespace attend::kernels::reference
