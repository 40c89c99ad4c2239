// How far a kernel may be from the float64 reference: error <= 2 * error(the same math in the case's dtypes)
// + epsilon, on the same input, row by row.
//
// The error of a row (one token, one head) is the root mean square over its elements: steadier than the
// largest element, and still far above the bound when a single element is wrong.
//
// The same math: products of the stored inputs summed in float32 one after another, exp and tanh of float32,
// P rounded to the dtype of q before P V, the output rounded to its dtype. How P rounds in one row is luck,
// so its error is taken to be at least the deviation that rounding at random gives (noise). epsilon is what
// float32 sums and functions in another order may differ by.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attend/kernels/attention/attention.h"

namespace attend::conformance {

// The reference's result of a problem, and the bounds of each row.
struct Expected {
  int64_t num_tokens = 0, num_heads = 0, head_dim = 0;
  std::vector<float> out;         // [num_tokens, num_heads, head_dim]
  std::vector<float> lse;         // [num_tokens, num_heads]
  std::vector<double> out_bound;  // [num_tokens, num_heads]: of the row's root mean square error
  std::vector<double> lse_bound;  // [num_tokens, num_heads]
};

// Reads all of `args` but out's and lse's elements.
Expected expect(const kernels::AttentionArgs& args);
Expected expect(const kernels::MlaArgs& args);

// What is wrong with a result, in one line that names the worst row; nothing when it is within the bounds.
// Empty rows must be exactly 0 and -inf. `lse` may be empty.
std::optional<std::string> mismatch(const Expected& expected, const TensorView& out, const TensorView& lse);

}  // namespace attend::conformance
