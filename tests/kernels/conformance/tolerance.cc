#include "tests/kernels/conformance/tolerance.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "attend/kernels/common/element.h"
#include "attend/kernels/kv_store/reference_rows.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "tests/kernels/conformance/low_precision.h"

namespace attend::conformance {
namespace {

using kernels::reference::load;
using kernels::reference::load_latent;
using kernels::reference::offset;
using kernels::reference::store;

// float32 sums of a few thousand terms, exp and tanh each have errors of some units in the last place. An
// error of a score is a relative error of its weight.
constexpr double kEpsilon = 16 * 0x1p-24;
// Tensor cores keep about 14 bits of fp8 products and their sums: each product of 32 columns truncates the
// sum at 2^-13 of its value, always toward zero. At least two products are assumed.
double epsilon_of_fp8(int64_t num_columns) {
  return 0x1p-13 * static_cast<double>(std::max<int64_t>(2, (num_columns + 31) / 32));
}

// Runs `reference` with float32 results, so that they are not rounded to the case's dtype.
template <class Args, class Fn>
Expected run_reference(Args args, const Fn& reference) {
  Expected expected;
  expected.num_tokens = args.out.shape[0];
  expected.num_heads = args.out.shape[1];
  expected.head_dim = args.out.shape[2];
  const auto num_rows = static_cast<size_t>(expected.num_tokens * expected.num_heads);
  // At least one element, since a view without memory means "not passed".
  expected.out.resize(std::max<size_t>(1, num_rows * static_cast<size_t>(expected.head_dim)));
  expected.lse.resize(std::max<size_t>(1, num_rows));
  args.out = TensorView::contiguous(expected.out.data(), DType::kF32,
                                    {expected.num_tokens, expected.num_heads, expected.head_dim});
  args.lse =
      TensorView::contiguous(expected.lse.data(), DType::kF32, {expected.num_tokens, expected.num_heads});
  reference(args);
  return expected;
}

void set_bounds(const std::vector<LowPrecisionRow>& low, const TensorView& q, Expected& expected) {
  const double epsilon_of_sums = is_fp8(q.dtype) ? epsilon_of_fp8(q.shape[2]) : kEpsilon;
  for (size_t i = 0; i < low.size(); ++i) {
    double square = 0.0;
    for (size_t d = 0; d < low[i].out.size(); ++d) {
      const double error =
          static_cast<double>(low[i].out[d]) - static_cast<double>(expected.out[i * low[i].out.size() + d]);
      square += error * error;
    }
    const double low_error =
        std::max(std::sqrt(square / static_cast<double>(low[i].out.size())), low[i].noise);
    const double epsilon = epsilon_of_sums * (1.0 + low[i].largest_score);
    expected.out_bound.push_back(2.0 * low_error + epsilon * low[i].magnitude);
    const bool empty = low[i].lse == kernels::kEmptyLse;
    const double lse_error =
        empty ? 0.0 : std::abs(static_cast<double>(low[i].lse) - static_cast<double>(expected.lse[i]));
    expected.lse_bound.push_back(2.0 * lse_error + (empty ? 0.0 : epsilon));
  }
}

// Dequantizes scaled rows; float32 represents every value exactly.
Tensor dequantized(const TensorView& latent) {
  const int64_t width = kernels::latent_width(latent);
  Tensor rows = Tensor::empty({latent.shape[0], latent.shape[1], width}, DType::kF32);
  auto* to = rows.as<float>();
  for (int64_t page = 0; page < latent.shape[0]; ++page)
    for (int64_t token = 0; token < latent.shape[1]; ++token)
      for (const double value : load_latent(latent, offset(latent, page, token), 0, width))
        *to++ = static_cast<float>(value);
  return rows;
}

// Converts an MLA problem to multi-query attention over the latent rows. `storage` owns the concatenated
// queries.
kernels::AttentionArgs as_attention(const kernels::MlaArgs& mla, Tensor& storage) {
  const int64_t rank = mla.q.shape[2], rope_dim = mla.q_rope.shape[2];
  storage = Tensor::empty({mla.q.shape[0], mla.q.shape[1], rank + rope_dim}, mla.q.dtype);
  const TensorView& joined = storage.view();
  for (int64_t token = 0; token < joined.shape[0]; ++token)
    for (int64_t head = 0; head < joined.shape[1]; ++head)
      for (int64_t d = 0; d < rank + rope_dim; ++d)
        store(joined, offset(joined, token, head, d),
              d < rank ? load(mla.q, offset(mla.q, token, head, d))
                       : load(mla.q_rope, offset(mla.q_rope, token, head, d - rank)));
  TensorView k = mla.latent;
  k.rank = 4;
  k.shape[2] = 1;
  k.strides[2] = 0;
  k.shape[3] = mla.latent.shape[2];
  k.strides[3] = 1;
  return {.q = joined,
          .out = mla.out,
          .lse = mla.lse,
          .kv = {.k = k,
                 .v = k.slice(3, 0, rank),
                 .index = mla.index,
                 .k_scale = mla.scale_kv,
                 .v_scale = mla.scale_kv},
          .batch = mla.batch,
          .attention_mask = mla.attention_mask,
          .score = mla.score};
}

}  // namespace

Expected expect(const kernels::AttentionArgs& args) {
  Expected expected =
      run_reference(args, [](const kernels::AttentionArgs& a) { kernels::reference::attention(a); });
  set_bounds(low_precision_attention(args), args.q, expected);
  return expected;
}

Expected expect(const kernels::MlaArgs& args) {
  Expected expected = run_reference(args, [](const kernels::MlaArgs& a) { kernels::reference::mla(a); });
  Tensor storage, rows;
  kernels::MlaArgs low = args;
  if (kernels::has_scaled_rows(args.latent)) low.latent = rows = dequantized(args.latent);
  set_bounds(low_precision_attention(as_attention(low, storage)), args.q, expected);
  return expected;
}

std::optional<std::string> mismatch(const Expected& expected, const TensorView& out, const TensorView& lse) {
  std::ostringstream worst;
  double worst_ratio = 1.0;
  int num_wrong = 0;
  const auto note = [&](double error, double bound, const auto&... parts) {
    // The comparison is written such that NaN counts as an error.
    if (error <= bound) return;
    ++num_wrong;
    const double ratio = bound > 0.0 && std::isfinite(error) ? error / bound : HUGE_VAL;
    if (ratio < worst_ratio) return;
    worst_ratio = ratio;
    worst.str("");
    (worst << ... << parts);
    worst << ": error " << error << ", bound " << bound;
  };
  for (int64_t token = 0; token < expected.num_tokens; ++token) {
    for (int64_t head = 0; head < expected.num_heads; ++head) {
      const auto i = static_cast<size_t>(token * expected.num_heads + head);
      const float* wanted = expected.out.data() + i * static_cast<size_t>(expected.head_dim);
      double square = 0.0;
      for (int64_t d = 0; d < expected.head_dim; ++d) {
        const double error = load(out, offset(out, token, head, d)) - static_cast<double>(wanted[d]);
        square += error * error;
      }
      note(std::sqrt(square / static_cast<double>(expected.head_dim)), expected.out_bound[i], "out of token ",
           token, ", head ", head, " (first element ", load(out, offset(out, token, head, 0)), ", expected ",
           wanted[0], ")");
      if (lse.empty()) continue;
      const double got = load(lse, offset(lse, token, head)), want = expected.lse[i];
      note(got == want ? 0.0 : std::abs(got - want), expected.lse_bound[i], "lse of token ", token, ", head ",
           head, " (", got, ", expected ", want, ")");
    }
  }
  if (num_wrong == 0) return std::nullopt;
  return std::to_string(num_wrong) + " rows out of bounds, the worst " + worst.str();
}

}  // namespace attend::conformance
