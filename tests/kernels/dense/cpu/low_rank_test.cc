// Low-rank adapters, compared with float64, on every instruction set.
#include "attend/kernels/gemm/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attend/kernels/gemm/cpu/low_rank.h"
#include "attend/kernels/gemm/linear.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using cpu::Isa;
using testing_support::error_message;
using testing_support::kWeightTypes;
using testing_support::TestTensor;

struct Term {
  TestTensor a, b;
  LowRankTerm view;

  Term(int64_t in_features, int64_t rank, int64_t num_outputs, DType dtype, float scale, int64_t first_out,
       uint64_t seed)
      : a(TestTensor::random({in_features, rank}, dtype, seed)),
        b(TestTensor::random({rank, num_outputs}, dtype, seed + 1)),
        view{.a = a, .b = b, .scale = scale, .first_out = first_out} {}
};

// Adds the products in float64; `magnitudes`: sums of absolute values.
void add_term(const Term& term, const TensorView& x, const AdapterRun& run, std::vector<double>& sums,
              std::vector<double>& magnitudes, int64_t out_features) {
  const int64_t in_features = x.shape[1], rank = term.view.rank(), num_outputs = term.b.view().shape[1];
  for (int64_t token = run.first_token; token < run.first_token + run.num_tokens; ++token)
    for (int64_t r = 0; r < rank; ++r) {
      double product = 0.0, magnitude = 0.0;
      for (int64_t i = 0; i < in_features; ++i) {
        const double one = static_cast<double>(x[token].as<float>()[i]) * term.a.at(i * rank + r);
        product += one;
        magnitude += std::abs(one);
      }
      for (int64_t out = 0; out < num_outputs; ++out) {
        const double factor = static_cast<double>(term.view.scale) * term.b.at(r * num_outputs + out);
        const auto index = static_cast<size_t>(token * out_features + term.view.first_out + out);
        sums[index] += product * factor;
        magnitudes[index] += magnitude * std::abs(factor);
      }
    }
}

void add(const TensorView& x, View<const LowRankProduct> products, const AdapterBatch& adapters, Isa isa) {
  cpu::shrink_low_rank(x, products, adapters, isa);
  cpu::expand_low_rank(products, adapters, isa);
}

TEST(AddLowRank, AddsTheTermsOfEachTokensAdapter) {
  constexpr int64_t kTokens = 41, kIns = 75, kOuts[] = {300, 19};
  for (const Isa isa : cpu::available_isas())
    for (const DType dtype : kWeightTypes)
      for (const int64_t rank :
           {int64_t{1}, int64_t{7}, int64_t{16}, int64_t{50}, kMaxAdapterRank + int64_t{0}}) {
        SCOPED_TRACE(testing::Message()
                     << cpu::to_string(isa) << ", " << to_string(dtype) << ", rank " << rank);
        // Layer 0 has a term for all outputs; layer 1 has two, for different outputs. The second adapter
        // changes layer 1 only.
        const Term whole(kIns, rank, 300, dtype, 0.5f, 0, 1), low(kIns, rank, 5, dtype, 2.0f, 0, 3),
            high(kIns, 3, 11, DType::kF32, -1.5f, 8, 5), other(kIns, 2, 19, dtype, 0.25f, 0, 7);
        const LowRankAdapter first{.layers = {{whole.view}, {low.view, high.view}}, .max_rank = rank + 3};
        const LowRankAdapter second{.layers = {{}, {other.view}}, .max_rank = 2};
        // Tokens 33 and 40 have none.
        const AdapterRun runs[] = {{0, 32, &first}, {32, 1, &first}, {34, 4, &second}, {38, 2, &first}};
        const TestTensor x = TestTensor::random({kTokens, kIns + 6}, DType::kF32, 11);
        const TensorView rows = x.view().slice(1, 4, 4 + kIns);
        const TestTensor outs[] = {TestTensor::random({kTokens, kOuts[0]}, DType::kF32, 12),
                                   TestTensor::random({kTokens, kOuts[1]}, DType::kF32, 13)};
        std::vector<double> expected[2], magnitudes[2];
        for (size_t layer = 0; layer < 2; ++layer) {
          expected[layer] = outs[layer].values();
          magnitudes[layer].assign(expected[layer].size(), 1.0);
        }
        for (const AdapterRun& run : runs) {
          if (run.adapter == &first) {
            add_term(whole, rows, run, expected[0], magnitudes[0], kOuts[0]);
            add_term(low, rows, run, expected[1], magnitudes[1], kOuts[1]);
            add_term(high, rows, run, expected[1], magnitudes[1], kOuts[1]);
          } else {
            add_term(other, rows, run, expected[1], magnitudes[1], kOuts[1]);
          }
        }
        const TestTensor scratch({kTokens, kMaxLowRankProducts * (rank + 3)}, DType::kF32);
        // The product between them is not changed.
        const TestTensor fixed = TestTensor::random({kTokens, 4}, DType::kF32, 14);
        const std::vector<double> before = fixed.values();
        const LowRankProduct products[] = {{0, outs[0]}, {-1, fixed}, {1, outs[1]}};
        add(rows, products, {.runs = runs, .products = scratch}, isa);
        for (size_t layer = 0; layer < 2; ++layer)
          for (size_t i = 0; i < expected[layer].size(); ++i)
            ASSERT_NEAR(outs[layer].at(static_cast<int64_t>(i)), expected[layer][i],
                        2e-6 * magnitudes[layer][i])
                << "layer " << layer << ", element " << i;
        EXPECT_EQ(fixed.values(), before);
      }
}

TEST(AddLowRank, GivesATokenTheSameBitsInEveryRun) {
  constexpr int64_t kTokens = 29, kIns = 200, kOuts = 530;
  const Term term(kIns, 24, kOuts, DType::kBF16, 0.5f, 0, 1);
  const LowRankAdapter adapter{.layers = {{term.view}}, .max_rank = 24};
  const TestTensor x = TestTensor::random({kTokens, kIns}, DType::kF32, 2),
                   scratch({kTokens, kMaxLowRankProducts * 24}, DType::kF32);
  for (const Isa isa : cpu::available_isas()) {
    SCOPED_TRACE(cpu::to_string(isa));
    const TestTensor together({kTokens, kOuts}, DType::kF32), single({kTokens, kOuts}, DType::kF32);
    const AdapterRun all[] = {{0, kTokens, &adapter}};
    const LowRankProduct products[] = {{0, together}};
    add(x, products, {.runs = all, .products = scratch}, isa);
    for (int64_t token = 0; token < kTokens; ++token) {
      const AdapterRun one[] = {{token, 1, &adapter}};
      const LowRankProduct product[] = {{0, single}};
      add(x, product, {.runs = one, .products = scratch}, isa);
    }
    EXPECT_EQ(together.values(), single.values());
  }
}

TEST(AddLowRank, RejectsShapesThatDoNotMatch) {
  const Term term(8, 4, 16, DType::kF32, 1.0f, 0, 1);
  const TestTensor x({3, 8}, DType::kF32), narrow({3, 7}, DType::kF32), out({3, 16}, DType::kF32),
      small({3, 12}, DType::kF32), scratch({3, 16}, DType::kF32);
  LowRankAdapter adapter{.layers = {{term.view}}, .max_rank = 4};
  std::vector<AdapterRun> runs = {{0, 3, &adapter}};
  Stream stream{Device{}};
  const auto message = [&](const TensorView& from, const TensorView& to, const TensorView& products) {
    const LowRankProduct product[] = {{0, to}};
    return error_message(ErrorCode::kInvalidArgument, [&] {
      const AdapterBatch batch{.runs = runs, .products = products};
      shrink_low_rank({.x = from}, product, batch, stream);
      expand_low_rank({.x = from}, product, batch, stream);
    });
  };
  EXPECT_NE(message(narrow, out, scratch).find("a float32[8, 4]"), std::string::npos);
  EXPECT_NE(message(x, small, scratch).find("exceed those of"), std::string::npos);
  EXPECT_NE(message(x, out, scratch.view().slice(1, 0, 15)).find("expected a width of at least 16"),
            std::string::npos);
  adapter.max_rank = 3;
  EXPECT_NE(message(x, out, scratch).find("layer 0 has a rank of 4"), std::string::npos);
  adapter.max_rank = 4;
  runs[0].num_tokens = 4;
  EXPECT_NE(message(x, out, scratch).find("4 tokens from 0 on"), std::string::npos);
}

}  // namespace
}  // namespace attend::kernels
