// Prefill on sm_90a with fp8 K/V, which are converted to f16 together with bf16 queries. Query rows outside
// the range of f16 are scaled by powers of two. Also e4m3 queries with descales of 0.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <span>
#include <vector>

#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/common/element.h"
#include "tests/kernels/conformance/cases/cases.h"
#include "tests/kernels/conformance/tolerance.h"
#include "tests/kernels/cuda/support/device_case.h"
#include "tests/kernels/cuda/support/needs_gpu.h"

namespace attend::testing_cuda {
namespace {

using conformance::AttentionCase;
using conformance::BuiltCase;

AttentionCase base_case(int head_dim, DType kv_dtype) {
  return {.requests = {{100, 700}, {70, 90}, {40, 300}},
          .num_q_heads = 4,
          .num_kv_heads = 2,
          .head_dim_qk = head_dim,
          .head_dim_v = head_dim,
          .q_dtype = DType::kBF16,
          .out_dtype = DType::kBF16,
          .kv_dtype = kv_dtype,
          .page_size = 16,
          .num_workers = 2,
          .seed = static_cast<uint64_t>(head_dim)};
}

std::vector<AttentionCase> cases_of_queries() {
  std::vector<AttentionCase> cases{base_case(128, DType::kF8E4M3), base_case(64, DType::kF8E5M2),
                                   base_case(80, DType::kF8E4M3), base_case(128, DType::kF8E5M2),
                                   base_case(128, DType::kF8E4M3)};
  cases[1].sinks = true;
  cases[2].logit_cap = 5.0f;
  cases[3].spread = conformance::ScoreSpread::kSharp;
  // CTAs divide the keys.
  cases[4].split_rule = kernels::SplitRule::kBalanced;
  cases[4].num_workers = 40;
  return cases;
}

// Runs attention and returns the bytes of its results.
std::vector<unsigned char> attend_to(const BuiltCase& built) {
  attention_on_gpu_if(
      [](const kernels::AttentionArgs& args, const kernels::cuda::DevicePlan& plan) {
        return choose(attention_problem(args, plan), kernels::cuda::gpu_facts(kGpu)).row.kernel ==
               kernels::cuda::AttentionKernel::kSm90Prefill;
      },
      built.args, built);
  return built.result_bytes();
}

// Queries of one or more tokens.
std::span<uint16_t> queries_at(const BuiltCase& built, int token, int num_tokens = 1) {
  const auto columns = static_cast<size_t>(built.spec.num_q_heads * built.spec.head_dim_qk);
  return {static_cast<uint16_t*>(built.args.q.data) + static_cast<size_t>(token) * columns,
          static_cast<size_t>(num_tokens) * columns};
}

// Results for queries times 2^exponent, exact in bf16, and a score scale divided by it.
std::vector<unsigned char> bits_with(const AttentionCase& c, int exponent) {
  BuiltCase built(c);
  for (uint16_t& q : queries_at(built, 0, c.num_tokens())) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(q) << 16);
    q = static_cast<uint16_t>(std::bit_cast<uint32_t>(std::ldexp(value, exponent)) >> 16);
  }
  built.args.score.scale = std::ldexp(built.args.score.scale, -exponent);
  return attend_to(built);
}

using CudaPrefillFp8 = NeedsHopper;

// The conformance test of ordinary queries covers these queries too. The largest magnitude of a row is at
// least 1, so that even the smallest scaled queries lose no precision.
TEST_F(CudaPrefillFp8, ProducesTheSameBitsForQueriesOutsideTheRangeOfF16) {
  for (const AttentionCase& c : cases_of_queries()) {
    const std::vector<unsigned char> expected = bits_with(c, 0);
    for (const int exponent : {-32, 20, 110})
      EXPECT_TRUE(bits_with(c, exponent) == expected) << exponent << " " << c;
  }
}

constexpr uint16_t kMinusZero = 0x8000, kSubnormal = 0x0003, kLargestPower = 0x7f00, kInfinity = 0x7f80,
                   kNan = 0x7fc0;

TEST_F(CudaPrefillFp8, ZeroAndSubnormalQueriesYieldTheMeanOfValues) {
  // Tokens of the first request. Its rows attend to 601 keys or more.
  constexpr int kZeros = 5, kMinusZeros = 21, kSubnormals = 90, kKeysBefore = 600;
  for (const AttentionCase& c : cases_of_queries()) {
    const BuiltCase built(c);
    std::ranges::fill(queries_at(built, kZeros), uint16_t{0});
    std::ranges::fill(queries_at(built, kMinusZeros), kMinusZero);
    std::ranges::fill(queries_at(built, kSubnormals), kSubnormal);
    attend_to(built);
    const auto wrong = conformance::mismatch(conformance::expect(built.args), built.args.out, {});
    EXPECT_FALSE(wrong) << *wrong << "\n  " << c;
    for (const int token : {kZeros, kMinusZeros, kSubnormals})
      for (int head = 0; head < c.num_q_heads; ++head)
        EXPECT_NEAR(
            kernels::reference::load(built.args.lse, kernels::reference::offset(built.args.lse, token, head)),
            std::log(kKeysBefore + token + 1), 1e-4)
            << "token " << token << " head " << head << " " << c;
  }
}

TEST_F(CudaPrefillFp8, RowsDoNotAffectNeighbors) {
  struct Strange {
    int token;
    uint16_t bits;
  };
  constexpr Strange kStrange[] = {{5, 0}, {6, kSubnormal}, {20, kLargestPower}, {40, kInfinity}, {75, kNan}};
  for (const AttentionCase& c : cases_of_queries()) {
    const BuiltCase ordinary(c), strange(c);
    for (const auto& [token, bits] : kStrange) std::ranges::fill(queries_at(strange, token), bits);
    const std::vector<unsigned char> expected = attend_to(ordinary), actual = attend_to(strange);
    const auto num_tokens = static_cast<size_t>(c.num_tokens());
    const size_t out_bytes = static_cast<size_t>(c.num_q_heads * c.head_dim_v) * sizeof(uint16_t),
                 lse_bytes = static_cast<size_t>(c.num_q_heads) * sizeof(float);
    for (size_t token = 0; token < num_tokens; ++token) {
      if (std::ranges::count(kStrange, static_cast<int>(token), &Strange::token)) continue;
      const auto is_same = [&](size_t begin, size_t bytes) {
        return std::ranges::equal(std::span(actual).subspan(begin, bytes),
                                  std::span(expected).subspan(begin, bytes));
      };
      ASSERT_TRUE(is_same(token * out_bytes, out_bytes)) << "token " << token << " " << c;
      ASSERT_TRUE(is_same(num_tokens * out_bytes + token * lse_bytes, lse_bytes))
          << "LSE of token " << token << " " << c;
    }
  }
}

std::vector<AttentionCase> with_both_query_dtypes(const std::vector<AttentionCase>& cases) {
  std::vector<AttentionCase> both;
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (AttentionCase c : cases) {
      c.q_dtype = c.out_dtype = dtype;
      both.push_back(c);
    }
  return both;
}

// Equal descales for all requests and heads.
struct SameDescales {
  explicit SameDescales(const BuiltCase& built, float q, float k, float v)
      : count(static_cast<size_t>(built.spec.num_reqs() * built.spec.num_kv_heads)),
        numbers{std::vector(count, q), std::vector(count, k), std::vector(count, v)} {}
  void pass_to(BuiltCase& built) const {
    kernels::HeadScales* const scales[] = {&built.args.q_scales, &built.args.k_scales, &built.args.v_scales};
    for (size_t i = 0; i < numbers.size(); ++i)
      *scales[i] = {.data = numbers[i].data(), .request_stride = built.spec.num_kv_heads, .head_stride = 1};
  }

  size_t count;
  std::array<std::vector<float>, 3> numbers;
};

// Powers of two, which change no rounding.
TEST_F(CudaPrefillFp8, ProducesTheSameBitsForTensorAndScalarDescales) {
  for (const AttentionCase& c : with_both_query_dtypes(cases_of_queries())) {
    BuiltCase with_numbers(c), with_tensors(c);
    with_numbers.args.kv.k_scale = 2.0f;
    with_numbers.args.kv.v_scale = 0.25f;
    const SameDescales descales(with_tensors, 0.5f, 4.0f, 0.25f);
    descales.pass_to(with_tensors);
    EXPECT_TRUE(attend_to(with_tensors) == attend_to(with_numbers)) << c;
  }
}

// Zero descales act like heads with only zero keys. Rows of the third request attend to no keys, some rows of
// the first request to no key of their first KV tile.
TEST_F(CudaPrefillFp8, ZeroDescaleYieldsTheMeanOfValues) {
  std::vector<AttentionCase> cases = with_both_query_dtypes(cases_of_queries());
  std::ranges::copy(conformance::in_e4m3(cases_of_queries()), std::back_inserter(cases));
  for (AttentionCase& c : cases) {
    c.requests = {{200, 700}, {70, 90}, {90, 40}};
    c.num_kv_heads = c.num_q_heads;
    c.window_left = 60;
    BuiltCase built(c);
    const SameDescales descales(built, 1.0f, 0.0f, 1.5f);
    descales.pass_to(built);
    attend_to(built);
    const auto wrong = conformance::mismatch(conformance::expect(built.args), built.args.out, built.args.lse);
    EXPECT_FALSE(wrong) << *wrong << "\n  " << c;
  }
}

// One key with a value of zero has nearly all of the weight. Each other key has a weight of 2^-26, which f16
// can represent because P is scaled by 2^7.
TEST_F(CudaPrefillFp8, AccumulatesManyKeysOfLittleWeight) {
  constexpr int kKeys = 3000;
  constexpr double kScore = -18.0;
  const double weight = std::exp(kScore), expected = (kKeys - 1) * weight / (1.0 + (kKeys - 1) * weight);
  for (const int head_dim : {64, 128})
    for (const DType q_dtype : {DType::kBF16, DType::kF16}) {
      AttentionCase c = base_case(head_dim, DType::kF8E4M3);
      c.requests = {{100, kKeys}};
      c.q_dtype = q_dtype;
      c.out_dtype = DType::kF32;
      c.causal = false;
      c.index = kernels::KvIndexKind::kContiguous;
      c.page_size = 1;
      BuiltCase built(c);
      built.args.score.scale = 1.0f;
      const TensorView &q = built.args.q, &k = built.args.kv.k, &v = built.args.kv.v, &out = built.args.out;
      using kernels::reference::offset;
      for (int64_t head = 0; head < c.num_q_heads; ++head)
        for (int64_t token = 0; token < c.num_tokens(); ++token)
          for (int64_t d = 0; d < head_dim; ++d)
            kernels::reference::store(q, offset(q, token, head, d), d == 0 ? 1.0 : 0.0);
      for (int64_t head = 0; head < c.num_kv_heads; ++head)
        for (int64_t key = 0; key < kKeys; ++key)
          for (int64_t d = 0; d < head_dim; ++d) {
            kernels::reference::store(k, offset(k, key, 0, head, d), d == 0 && key > 0 ? kScore : 0.0);
            kernels::reference::store(v, offset(v, key, 0, head, d), key > 0 ? 1.0 : 0.0);
          }
      attend_to(built);
      for (int64_t token = 0; token < c.num_tokens(); ++token)
        for (int64_t head = 0; head < c.num_q_heads; ++head)
          ASSERT_NEAR(kernels::reference::load(out, offset(out, token, head, head_dim - 1)), expected,
                      0.02 * expected)
              << "token " << token << " head " << head << " " << c;
    }
}

// Many work tiles per CTA, in sequence.
TEST_F(CudaPrefillFp8, ProducesTheSameBitsThirtyTimes) {
  for (const int head_dim : {64, 128})
    for (const DType q_dtype : {DType::kBF16, DType::kF16})
      for (const int page_size : {1, 4, 64}) {
        AttentionCase c = base_case(head_dim, DType::kF8E4M3);
        c.requests = {{400, 1111}, {700, 700}, {65, 2000}};
        c.num_q_heads = 16;
        c.num_kv_heads = 8;
        c.q_dtype = c.out_dtype = q_dtype;
        c.page_size = page_size;
        c.page_order = conformance::PageOrder::kShuffled;
        c.num_workers = 20;
        BuiltCase built(c);
        const std::vector<unsigned char> first = attend_to(built);
        for (int i = 0; i < 30; ++i) {
          built.poison_results();
          ASSERT_TRUE(attend_to(built) == first) << "repeat " << i << " " << c;
        }
      }
}

}  // namespace
}  // namespace attend::testing_cuda
