// Prefill rows on sm_90a with a P that overflows relative to the row maximum of earlier KV tiles. Their warp
// recomputes its scores, including those of neighboring rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <ostream>
#include <vector>

#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "tests/kernels/conformance/rounded.h"
#include "tests/kernels/cuda/support/device_case.h"
#include "tests/kernels/cuda/support/needs_gpu.h"

namespace attend::testing_cuda {
namespace {

using conformance::AttentionCase;
using conformance::BuiltCase;

float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

struct Kind {
  int head_dim;
  DType kv_dtype;
  int page_size = 16;
};
std::ostream& operator<<(std::ostream& out, const Kind& kind) {
  return out << kind.head_dim << " " << kind.kv_dtype << " in pages of " << kind.page_size;
}

class CudaPrefillRedoneRows : public NeedsHopper, public testing::WithParamInterface<Kind> {
 protected:
  // Factor that raises the standard deviation of scores to this value, so that some score exceeds the maximum
  // before it by far more than 2^64 after the exponential. With fp8 K/V, queries are converted to f16, which
  // has a smaller range.
  static float query_factor() { return is_fp8(GetParam().kv_dtype) ? 0x1p17f : 256.0f; }
  static constexpr int kTokens = 100, kKeys = 700, kHeads = 4, kKvHeads = 2;

  static AttentionCase make_case() {
    return {.requests = {{kTokens, kKeys}},
            .num_q_heads = kHeads,
            .num_kv_heads = kKvHeads,
            .head_dim_qk = GetParam().head_dim,
            .head_dim_v = GetParam().head_dim == 192 ? 128 : GetParam().head_dim,
            .q_dtype = DType::kBF16,
            .out_dtype = DType::kBF16,
            .kv_dtype = GetParam().kv_dtype,
            .page_size = GetParam().page_size,
            .num_workers = 2,
            .seed = 7};
  }

  // Results [token, head, column].
  static std::vector<uint16_t> outputs(const BuiltCase& built) {
    attention_on_gpu_if(
        [](const kernels::AttentionArgs& args, const kernels::cuda::DevicePlan& plan) {
          return choose(attention_problem(args, plan), kernels::cuda::gpu_facts(kGpu)).row.kernel ==
                 kernels::cuda::AttentionKernel::kSm90Prefill;
        },
        built.args, built);
    std::vector<uint16_t> out(size_t{kTokens} * kHeads * static_cast<size_t>(built.spec.head_dim_v));
    std::memcpy(out.data(), built.args.out.data, out.size() * sizeof(uint16_t));
    return out;
  }

  // Multiplies a query row by query_factor(), exactly in bf16.
  static void scale_queries(const BuiltCase& built, int token) {
    const int columns = kHeads * built.spec.head_dim_qk;
    auto* const q = static_cast<uint16_t*>(built.args.q.data) + token * columns;
    for (int i = 0; i < columns; ++i)
      q[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(from_bf16(q[i]) * query_factor()) >> 16);
  }

  // Value of K or V after rounding to its dtype.
  static double stored(float value) { return conformance::rounded(GetParam().kv_dtype, value); }

  static size_t kv_head_for(int head) { return static_cast<size_t>(head / (kHeads / kKvHeads)); }

  // Scores of a scaled query in float64.
  static std::vector<double> compute_scores(const BuiltCase& built, int token, int head) {
    const auto dim = static_cast<size_t>(built.spec.head_dim_qk);
    const float* const q = &built.values.q[static_cast<size_t>(token * kHeads + head) * dim];
    std::vector<double> scores(static_cast<size_t>(kKeys - kTokens + token + 1));
    for (size_t key = 0; key < scores.size(); ++key) {
      const float* const k = &built.values.k[(key * kKvHeads + kv_head_for(head)) * dim];
      double score = 0.0;
      for (size_t i = 0; i < dim; ++i) score += double{query_factor()} * q[i] * stored(k[i]);
      scores[key] = score * built.args.score.scale;
    }
    return scores;
  }

  // Returns true if P relative to the maximum of the first KV tile exceeds 2^64, for every tile size.
  static bool overflows(const std::vector<double>& scores) {
    constexpr int kLargestTile = 192;
    const auto rest = scores.begin() + kLargestTile;
    return *std::max_element(rest, scores.end()) - *std::max_element(scores.begin(), rest) >
           64.0 * std::numbers::ln2;
  }

  // Reference of an output row in float64.
  static std::vector<double> expected(const BuiltCase& built, const std::vector<double>& scores, int head) {
    const auto dim = static_cast<size_t>(built.spec.head_dim_v);
    std::vector<double> out(dim);
    const double most = *std::ranges::max_element(scores);
    double sum = 0.0;
    for (size_t key = 0; key < scores.size(); ++key) {
      const float* const v = &built.values.v[(key * kKvHeads + kv_head_for(head)) * dim];
      const double p = std::exp(scores[key] - most);
      sum += p;
      for (size_t i = 0; i < dim; ++i) out[i] += p * stored(v[i]);
    }
    for (double& x : out) x /= sum;
    return out;
  }
};

TEST_P(CudaPrefillRedoneRows, AreCorrectAndDoNotAffectNeighbors) {
  const BuiltCase ordinary(make_case()), scaled(make_case());
  const std::vector<int> scaled_tokens{3, 20, 21, 77};
  for (const int token : scaled_tokens) scale_queries(scaled, token);
  const std::vector<uint16_t> without = outputs(ordinary), with = outputs(scaled);
  const auto row_elements = static_cast<size_t>(scaled.spec.head_dim_v);
  int num_overflows = 0;
  for (int token = 0; token < kTokens; ++token)
    for (int head = 0; head < kHeads; ++head) {
      const size_t begin = static_cast<size_t>(token * kHeads + head) * row_elements;
      if (!std::ranges::count(scaled_tokens, token)) {
        ASSERT_EQ(std::memcmp(&with[begin], &without[begin], row_elements * sizeof(uint16_t)), 0)
            << "token " << token << " head " << head;
        continue;
      }
      const std::vector<double> scores = compute_scores(scaled, token, head),
                                row = expected(scaled, scores, head);
      num_overflows += overflows(scores) ? 1 : 0;
      for (size_t i = 0; i < row_elements; ++i)
        ASSERT_NEAR(from_bf16(with[begin + i]), row[i], 0.02)
            << "token " << token << " head " << head << " column " << i;
    }
  EXPECT_GT(num_overflows, 0) << "no row's P overflowed";
}
INSTANTIATE_TEST_SUITE_P(EachHeadDim, CudaPrefillRedoneRows,
                         testing::Values(Kind{64, DType::kBF16}, Kind{96, DType::kBF16},
                                         Kind{128, DType::kBF16}, Kind{192, DType::kBF16},
                                         Kind{256, DType::kBF16}, Kind{64, DType::kF8E4M3},
                                         Kind{128, DType::kF8E5M2}, Kind{128, DType::kF8E4M3},
                                         // Keys copied row by row.
                                         Kind{64, DType::kBF16, 1}, Kind{96, DType::kBF16, 1},
                                         Kind{128, DType::kBF16, 4}, Kind{192, DType::kBF16, 8},
                                         Kind{256, DType::kBF16, 1}));

}  // namespace
}  // namespace attend::testing_cuda
