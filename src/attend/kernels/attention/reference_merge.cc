#include <algorithm>
#include <cmath>

#include "attend/kernels/attention/merge.h"
#include "attend/kernels/common/element.h"

namespace attend::kernels::reference {
namespace {

// exp(lse - largest), 0 for an empty part.
double weight_of(double lse, double largest) { return lse == kEmptyLse ? 0.0 : std::exp(lse - largest); }

// FlashAttention marks empty rows with +inf, attend with -inf; both mean no keys.
double normalised(double lse) { return std::isinf(lse) ? double{kEmptyLse} : lse; }

}  // namespace

void merge(const MergeArgs& args) {
  check(args);
  for (int64_t token = 0; token < args.out.shape[0]; ++token) {
    for (int64_t head = 0; head < args.out.shape[1]; ++head) {
      const double a = normalised(load(args.lse_a, offset(args.lse_a, token, head)));
      const double b = normalised(load(args.lse_b, offset(args.lse_b, token, head)));
      const double largest = std::max(a, b);
      const double weight_a = weight_of(a, largest), weight_b = weight_of(b, largest);
      const double sum = weight_a + weight_b;
      for (int64_t d = 0; d < args.out.shape[2]; ++d) {
        // An empty part's output is not read: it may be anything.
        const double part_a =
            weight_a == 0.0 ? 0.0 : weight_a * load(args.out_a, offset(args.out_a, token, head, d));
        const double part_b =
            weight_b == 0.0 ? 0.0 : weight_b * load(args.out_b, offset(args.out_b, token, head, d));
        store(args.out, offset(args.out, token, head, d), sum == 0.0 ? 0.0 : (part_a + part_b) / sum);
      }
      if (!args.lse.empty())
        store(args.lse, offset(args.lse, token, head), sum == 0.0 ? kEmptyLse : largest + std::log(sum));
    }
  }
}

void merge_splits(const MergeSplitsArgs& args) {
  check(args);
  const int64_t num_splits = args.partial_out.shape[0];
  for (int64_t token = 0; token < args.out.shape[0]; ++token) {
    for (int64_t head = 0; head < args.out.shape[1]; ++head) {
      const auto lse_of = [&](int64_t split) {
        return normalised(load(args.partial_lse, offset(args.partial_lse, split, token, head)));
      };
      double largest = kEmptyLse;
      for (int64_t split = 0; split < num_splits; ++split) largest = std::max(largest, lse_of(split));
      double sum = 0.0;
      for (int64_t split = 0; split < num_splits; ++split) sum += weight_of(lse_of(split), largest);
      const double sink =
          args.sinks.empty() || sum == 0.0
              ? 0.0
              : std::exp(static_cast<double>(args.sinks[static_cast<size_t>(head)]) - largest);
      for (int64_t d = 0; d < args.out.shape[2]; ++d) {
        double total = 0.0;
        for (int64_t split = 0; split < num_splits; ++split) {
          const double weight = weight_of(lse_of(split), largest);
          if (weight != 0.0)
            total += weight * load(args.partial_out, offset(args.partial_out, split, token, head, d));
        }
        store(args.out, offset(args.out, token, head, d), sum == 0.0 ? 0.0 : total / (sum + sink));
      }
      if (!args.lse.empty())
        store(args.lse, offset(args.lse, token, head), sum == 0.0 ? kEmptyLse : largest + std::log(sum));
    }
  }
}

}  // namespace attend::kernels::reference
