// Attention computed by simple code in the dtypes of a case. The tolerance of the conformance suite is
// relative to its error.
#pragma once

#include <vector>

#include "attend/kernels/attention/attention.h"

namespace attend::conformance {

// One row: a token and a query head.
struct LowPrecisionRow {
  std::vector<float> out;  // [head_dim_v], rounded to the dtype of args.out
  float lse = kernels::kEmptyLse;
  double noise = 0.0;  // root mean square error over the elements expected from rounding P and out at random
  double magnitude = 0.0;      // root mean square over the elements of sum p |v|
  double largest_score = 0.0;  // max over visible keys of scale * sum |q| |k|, plus the cap
};

// Returns [num_tokens, num_q_heads] rows. Padding tokens and rows without keys are empty rows. Does not
// access args.out and args.lse. Supports any head dims.
std::vector<LowPrecisionRow> low_precision_attention(const kernels::AttentionArgs& args);

// Half the distance between neighboring values of a dtype: relative to the value, and an absolute minimum.
struct Rounding {
  double relative, absolute;
  double of(double value) const;
};
Rounding rounding_for(DType dtype);

}  // namespace attend::conformance
