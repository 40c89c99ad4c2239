#include "tests/kernels/conformance/merge_suite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>

#include "attend/kernels/common/element.h"
#include "tests/kernels/conformance/cases/literal.h"
#include "tests/kernels/conformance/cases/poison.h"
#include "tests/kernels/conformance/cases/random.h"
#include "tests/kernels/conformance/low_precision.h"
#include "tests/kernels/conformance/tolerance.h"

namespace attend::conformance {
namespace {

using kernels::reference::load;
using kernels::reference::offset;
using kernels::reference::store;

struct MergeCase {
  int num_splits = 2;
  int num_tokens = 5;
  int num_heads = 3;
  int head_dim = 64;
  DType dtype = DType::kF32;   // dtype of out; if two parts are merged, also of both parts
  float lse_deviation = 1.0f;  // standard deviation of the LSE of parts
  int one_in_empty = 3;        // one part in this many is empty; 1: all
  bool sinks = false;
  bool strided = false;
  bool in_place = false;  // the result overwrites the first part
  bool lse = true;
  uint64_t seed = 0;
};

std::string to_literal(const MergeCase& c) {
  const MergeCase usual;
  LiteralPrinter printer("MergeCase");
  const auto field = [&](std::string_view name, auto MergeCase::*member) {
    printer.field(name, c.*member, usual.*member);
  };
  field("num_splits", &MergeCase::num_splits);
  field("num_tokens", &MergeCase::num_tokens);
  field("num_heads", &MergeCase::num_heads);
  field("head_dim", &MergeCase::head_dim);
  field("dtype", &MergeCase::dtype);
  field("lse_deviation", &MergeCase::lse_deviation);
  field("one_in_empty", &MergeCase::one_in_empty);
  field("sinks", &MergeCase::sinks);
  field("strided", &MergeCase::strided);
  field("in_place", &MergeCase::in_place);
  field("lse", &MergeCase::lse);
  field("seed", &MergeCase::seed);
  return printer.finish();
}

// Partial results in memory, and memory for the merged result.
struct BuiltMerge {
  explicit BuiltMerge(const MergeCase& c, DType part_dtype) {
    const int64_t gap = c.strided ? 8 : 0;
    parts_ = Tensor::empty({c.num_splits, c.num_tokens, c.num_heads + gap, c.head_dim + gap}, part_dtype);
    lses_ = Tensor::empty({c.num_splits, c.num_tokens, c.num_heads + gap}, DType::kF32);
    out_ = Tensor::empty({c.num_tokens, c.num_heads + gap, c.head_dim + gap}, c.dtype);
    lse_ = Tensor::empty({c.num_tokens, c.num_heads + gap}, DType::kF32);
    for (const Tensor& tensor : {parts_, lses_, out_, lse_}) poison(tensor);
    parts = parts_.view().slice(2, 0, c.num_heads).slice(3, 0, c.head_dim);
    lses = lses_.view().slice(2, 0, c.num_heads);
    out = out_.view().slice(1, 0, c.num_heads).slice(2, 0, c.head_dim);
    lse = lse_.view().slice(1, 0, c.num_heads);
    Random random(c.seed);
    for (int64_t split = 0; split < c.num_splits; ++split)
      for (int64_t token = 0; token < c.num_tokens; ++token)
        for (int64_t head = 0; head < c.num_heads; ++head) fill_row(c, split, token, head, random);
    for (int head = 0; head < c.num_heads && c.sinks; ++head) sinks.push_back(2.0f * random.normal());
  }

  // Only the LSE of an empty part is written; its output stays poisoned.
  void fill_row(const MergeCase& c, int64_t split, int64_t token, int64_t head, Random& random) {
    const bool empty = random.below(c.one_in_empty) == 0;
    // Other libraries use +inf for empty parts.
    const double no_keys = random.below(4) == 0 ? HUGE_VAL : double{kernels::kEmptyLse};
    store(lses, offset(lses, split, token, head),
          empty ? no_keys : static_cast<double>(c.lse_deviation * random.normal()));
    for (int64_t d = 0; d < c.head_dim && !empty; ++d)
      store(parts, offset(parts, split, token, head, d), static_cast<double>(random.normal()));
  }

  TensorView parts, lses, out, lse;
  std::vector<float> sinks;

 private:
  Tensor parts_, lses_, out_, lse_;
};

// Tolerance as in tolerance.h: twice the rounding of the output, plus the effect of the summation order in
// float32. Splits are merged one after another, so each adds its own rounding. An error of an LSE is a
// relative error of its weight. `reference(out, lse)` writes float32.
template <class Fn>
Expected expect_merged(const MergeCase& c, const Fn& reference) {
  Expected expected;
  expected.num_tokens = c.num_tokens;
  expected.num_heads = c.num_heads;
  expected.head_dim = c.head_dim;
  const auto num_rows = static_cast<size_t>(c.num_tokens * c.num_heads),
             head_dim = static_cast<size_t>(c.head_dim);
  expected.out.resize(num_rows * head_dim);
  expected.lse.resize(num_rows);
  reference(TensorView::contiguous(expected.out.data(), DType::kF32, {c.num_tokens, c.num_heads, c.head_dim}),
            TensorView::contiguous(expected.lse.data(), DType::kF32, {c.num_tokens, c.num_heads}));
  const Rounding rounding = rounding_for(c.dtype);
  for (size_t row = 0; row < num_rows; ++row) {
    double square = 0.0;
    for (size_t d = 0; d < head_dim; ++d) {
      const double error = rounding.of(expected.out[row * head_dim + d]);
      square += error * error;
    }
    const bool empty = expected.lse[row] == kernels::kEmptyLse;
    const double epsilon = (16.0 + 2.0 * c.num_splits) * 0x1p-24 * (1.0 + std::abs(expected.lse[row]));
    expected.out_bound.push_back(empty ? 0.0 : 2.0 * std::sqrt(square / c.head_dim) + epsilon);
    expected.lse_bound.push_back(empty ? 0.0 : epsilon);
  }
  return expected;
}

std::vector<MergeCase> merge_cases(int min_splits, int max_splits) {
  std::vector<MergeCase> cases;
  Random random(392313);
  for (int i = 0; i < 60; ++i) {
    constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
    constexpr int kHeadDims[] = {8, 64, 72, 80, 128, 192, 256, 512};
    constexpr float kDeviations[] = {0.1f, 1.0f, 5.0f, 60.0f};
    constexpr int kEmpty[] = {1000, 3, 2, 1};
    cases.push_back({.num_splits = min_splits + random.below(max_splits - min_splits + 1),
                     .num_tokens = 1 + random.below(9),
                     .num_heads = 1 + random.below(8),
                     .head_dim = kHeadDims[random.below(8)],
                     .dtype = kDTypes[i % 3],
                     .lse_deviation = kDeviations[i % 4],
                     .one_in_empty = kEmpty[random.below(4)],
                     .sinks = max_splits > 2 && random.below(2) == 0,
                     .strided = random.below(2) == 0,
                     .in_place = max_splits == 2 && random.below(3) == 0,
                     .lse = random.below(4) != 0,
                     .seed = random.next() % 1000000});
  }
  return cases;
}

template <class Args>
void expect_match(const MergeCase& c, const Expected& expected, const Args& args) {
  const std::optional<std::string> problem = mismatch(expected, args.out, args.lse);
  EXPECT_FALSE(problem) << problem.value_or("") << "\n  " << to_literal(c);
}

}  // namespace

void run_merge_conformance(const MergeFn& kernel) {
  for (const MergeCase& c : merge_cases(2, 2)) {
    BuiltMerge built(c, c.dtype);
    kernels::MergeArgs args{.out_a = built.parts[0],
                            .out_b = built.parts[1],
                            .lse_a = built.lses[0],
                            .lse_b = built.lses[1],
                            .out = c.in_place ? built.parts[0] : built.out,
                            .lse = {}};
    const Expected expected = expect_merged(c, [&](const TensorView& out, const TensorView& lse) {
      kernels::MergeArgs wide = args;
      wide.out = out;
      wide.lse = lse;
      kernels::reference::merge(wide);
    });
    if (c.lse) args.lse = c.in_place ? built.lses[0] : built.lse;
    kernel(args);
    expect_match(c, expected, args);
  }
}

void run_merge_splits_conformance(const MergeSplitsFn& kernel) {
  for (const MergeCase& c : merge_cases(1, 33)) {
    BuiltMerge built(c, DType::kF32);
    kernels::MergeSplitsArgs args{.partial_out = built.parts,
                                  .partial_lse = built.lses,
                                  .sinks = built.sinks,
                                  .out = built.out,
                                  .lse = {}};
    const Expected expected = expect_merged(c, [&](const TensorView& out, const TensorView& lse) {
      kernels::MergeSplitsArgs wide = args;
      wide.out = out;
      wide.lse = lse;
      kernels::reference::merge_splits(wide);
    });
    if (c.lse) args.lse = built.lse;
    kernel(args);
    expect_match(c, expected, args);
  }
}

}  // namespace attend::conformance
