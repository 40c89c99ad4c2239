// NaN in fp8 K and V reaches the results that depend on it, and no others.
#include <gtest/gtest.h>

#include <cmath>

#include "attend/kernels/attention/cpu/attention.h"
#include "tests/kernels/cpu/small_step.h"

namespace attend::kernels {
namespace {

constexpr int kKeys = 150;

// Head dims with and without a remainder for the kernels' blocks; few and many rows.
class Fp8Nan : public testing::TestWithParam<std::tuple<DType, int, int>> {
 protected:
  Fp8Nan() : step_(config(), {{.seqlen_q = std::get<2>(GetParam()), .seqlen_kv = kKeys}}) {}

  static StepConfig config() {
    return {
        .head_dim = std::get<1>(GetParam()), .q_dtype = DType::kBF16, .kv_dtype = std::get<0>(GetParam())};
  }
  // A byte of the first token and second KV head. 0x7f and 0xff are NaN in both formats.
  static uint8_t& byte_at(const TensorView& cache, int d) {
    return static_cast<uint8_t*>(cache[1][0][1].data)[d];
  }
  // Returns true if column `d` of `head` is NaN for every token.
  bool is_nan(int head, int d, cpu::Isa isa) {
    const AttentionArgs args = step_.args();
    AttentionPlan plan(step_.limits(), Device{});
    Stream stream;
    plan.plan(args.batch, args.attention_mask, stream);
    cpu::attention(args, plan, isa);
    int num_nan = 0;
    const int num_tokens = static_cast<int>(args.out.shape[0]);
    for (int token = 0; token < num_tokens; ++token)
      num_nan += std::isnan(args.out[token][head].as<const float>()[d]);
    EXPECT_TRUE(num_nan == 0 || num_nan == num_tokens) << isa << " head " << head << " column " << d;
    return num_nan > 0;
  }

  SmallStep step_;
};

TEST_P(Fp8Nan, InAKeyReachesEveryColumnOfItsHeads) {
  for (const int column : {0, 37, config().head_dim - 1})
    for (const cpu::Isa isa : cpu::available_isas()) {
      uint8_t& byte = byte_at(step_.args().kv.k, column);
      const uint8_t number = byte;
      byte = column == 0 ? 0xff : 0x7f;
      EXPECT_TRUE(is_nan(4, 0, isa) && is_nan(7, 63, isa)) << isa << ' ' << column;
      EXPECT_FALSE(is_nan(3, 0, isa)) << isa << ' ' << column;
      byte = number;
      EXPECT_FALSE(is_nan(4, 0, isa)) << isa << ' ' << column;
    }
}

TEST_P(Fp8Nan, InAValueReachesItsColumn) {
  for (const int column : {0, 37, config().head_dim - 1})
    for (const cpu::Isa isa : cpu::available_isas()) {
      uint8_t& byte = byte_at(step_.args().kv.v, column);
      const uint8_t number = byte;
      byte = column == 0 ? 0xff : 0x7f;
      EXPECT_TRUE(is_nan(4, column, isa) && is_nan(7, column, isa)) << isa << ' ' << column;
      EXPECT_FALSE(is_nan(4, 5, isa) || is_nan(3, column, isa)) << isa << ' ' << column;
      byte = number;
      EXPECT_FALSE(is_nan(4, column, isa)) << isa << ' ' << column;
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Fp8Nan,
                         testing::Combine(testing::Values(DType::kF8E4M3, DType::kF8E5M2),
                                          testing::Values(64, 80), testing::Values(1, 40)));

}  // namespace
}  // namespace attend::kernels
