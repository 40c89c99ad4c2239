// Tolerance of kernels relative to the float64 reference: error <= 2 * error(the same math in the case's
// dtypes) + epsilon, on the same input, row by row.
//
// The error of a row (one token, one head) is the root mean square over its elements. It varies less than the
// largest element, and still exceeds the bound by far when a single element is wrong.
//
// The same math: products of the stored inputs summed in float32 one after another, exp and tanh of float32,
// P rounded to the dtype of q before P V, and the output rounded to its dtype. The rounding of P in a single
// row is random, so its error is assumed to be at least the standard deviation of random rounding (noise).
// epsilon bounds the effect of another order of float32 sums and of other float32 functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attend/kernels/attention/attention.h"

namespace attend::conformance {

// Reference result of a problem, and the bounds of each row.
struct Expected {
  int64_t num_tokens = 0, num_heads = 0, head_dim = 0;
  std::vector<float> out;         // [num_tokens, num_heads, head_dim]
  std::vector<float> lse;         // [num_tokens, num_heads]
  std::vector<double> out_bound;  // [num_tokens, num_heads]: bound of the row's root mean square error
  std::vector<double> lse_bound;  // [num_tokens, num_heads]
};

// Reads all of `args` except the elements of out and lse.
Expected expect(const kernels::AttentionArgs& args);
Expected expect(const kernels::MlaArgs& args);

// Returns one line that names the worst row, or nothing if the result is within the bounds. Empty rows must
// be exactly 0 and -inf. `lse` may be empty.
std::optional<std::string> mismatch(const Expected& expected, const TensorView& out, const TensorView& lse);

}  // namespace attend::conformance
