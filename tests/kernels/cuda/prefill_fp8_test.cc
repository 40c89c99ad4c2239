// Prefill on sm_90a of queries of bf16 with K/V of fp8, which become f16 for its products: rows of queries
// that f16 cannot hold are scaled by powers of two.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "tests/kernels/cuda/device_case.h"
#include "tests/kernels/cuda/needs_gpu.h"

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
  cases[3].spread = conformance::ScoreSpread::kPeaked;
  // CTAs divide the keys.
  cases[4].split_rule = kernels::SplitRule::kBalanced;
  cases[4].num_workers = 40;
  return cases;
}

// Queries times 2^exponent, which bf16 has, and the scale divided by it.
std::vector<unsigned char> bits_with(const AttentionCase& c, int exponent) {
  BuiltCase built(c);
  auto* const q = static_cast<uint16_t*>(built.args.q.data);
  const int num_elements = c.num_tokens() * c.num_q_heads * c.head_dim_qk;
  for (int i = 0; i < num_elements; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(q[i]) << 16);
    q[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(std::ldexp(value, exponent)) >> 16);
  }
  built.args.score.scale = std::ldexp(built.args.score.scale, -exponent);
  attention_on_gpu_if(
      [](const kernels::AttentionArgs& args, const kernels::cuda::DevicePlan& plan) {
        return choose(attention_problem(args, plan), kernels::cuda::gpu_facts(kGpu)).kernel ==
               kernels::cuda::AttentionKernel::kSm90Prefill;
      },
      built.args, built);
  return built.result_bytes();
}

using CudaPrefillFp8 = NeedsHopper;

// What conformance of ordinary queries holds for, holds for those.
TEST_F(CudaPrefillFp8, GivesTheSameBitsForQueriesThatF16CannotHold) {
  for (const AttentionCase& c : cases_of_queries()) {
    const std::vector<unsigned char> expected = bits_with(c, 0);
    for (const int exponent : {-24, 20}) EXPECT_EQ(bits_with(c, exponent), expected) << exponent << " " << c;
  }
}

}  // namespace
}  // namespace attend::testing_cuda
