// Rows of prefill on sm_90a whose P overflows relative to the row max of the KV tiles before: their warp
// makes its scores once more, those of the rows beside them too.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "tests/kernels/cuda/device_case.h"
#include "tests/kernels/cuda/needs_gpu.h"

namespace attend::testing_cuda {
namespace {

using conformance::AttentionCase;
using conformance::BuiltCase;

float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

class CudaPrefillRedoneRows : public NeedsGpu, public testing::WithParamInterface<int> {
 protected:
  // A score's deviation becomes this, so that one exceeds the largest before it by far more than 2^64 after
  // the exponential.
  static constexpr float kTimes = 256.0f;
  static constexpr int kTokens = 100, kKeys = 700, kHeads = 4, kKvHeads = 2;

  void SetUp() override {
    NeedsGpu::SetUp();
    if (IsSkipped()) return;
    const cuda::DeviceInfo info = cuda::device_info(kGpu);
    if (info.major != 9 || info.minor != 0) GTEST_SKIP() << "not a GPU of compute capability 9.0";
  }

  static AttentionCase make_case() {
    return {.requests = {{kTokens, kKeys}},
            .num_q_heads = kHeads,
            .num_kv_heads = kKvHeads,
            .head_dim_qk = GetParam(),
            .head_dim_v = std::min(GetParam(), GetParam() == 192 ? 128 : 256),
            .q_dtype = DType::kBF16,
            .out_dtype = DType::kBF16,
            .kv_dtype = DType::kBF16,
            .page_size = 16,
            .num_workers = 2,
            .seed = 7};
  }

  // [token, head, column]
  static std::vector<uint16_t> outputs(const BuiltCase& built) {
    attention_on_gpu_if(
        [](const kernels::AttentionArgs& args, const kernels::cuda::DevicePlan& plan) {
          return choose(attention_problem(args, plan), kernels::cuda::gpu_facts(kGpu)).kernel ==
                 kernels::cuda::AttentionKernel::kSm90Prefill;
        },
        built.args, built);
    std::vector<uint16_t> out(size_t{kTokens} * kHeads * static_cast<size_t>(built.spec.head_dim_v));
    std::memcpy(out.data(), built.args.out.data, out.size() * sizeof(uint16_t));
    return out;
  }

  // The query row times kTimes, which bf16 has.
  static void make_hot(const BuiltCase& built, int token) {
    const int columns = kHeads * built.spec.head_dim_qk;
    auto* const q = static_cast<uint16_t*>(built.args.q.data) + token * columns;
    for (int i = 0; i < columns; ++i)
      q[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(from_bf16(q[i]) * kTimes) >> 16);
  }

  // An output row in float64, of a hot query.
  static std::vector<double> expected(const BuiltCase& built, int token, int head) {
    const int dim_qk = built.spec.head_dim_qk, dim_v = built.spec.head_dim_v,
              num_keys = kKeys - kTokens + token + 1, kv_head = head / (kHeads / kKvHeads);
    std::vector<double> scores(static_cast<size_t>(num_keys)), out(static_cast<size_t>(dim_v));
    double most = -INFINITY, sum = 0.0;
    for (int key = 0; key < num_keys; ++key) {
      double score = 0.0;
      for (int i = 0; i < dim_qk; ++i)
        score += double{kTimes} * built.values.q[static_cast<size_t>((token * kHeads + head) * dim_qk + i)] *
                 built.values.k[static_cast<size_t>((key * kKvHeads + kv_head) * dim_qk + i)];
      scores[static_cast<size_t>(key)] = score * built.args.score.scale;
      most = std::max(most, scores[static_cast<size_t>(key)]);
    }
    for (int key = 0; key < num_keys; ++key) {
      const double p = std::exp(scores[static_cast<size_t>(key)] - most);
      sum += p;
      for (int i = 0; i < dim_v; ++i)
        out[static_cast<size_t>(i)] +=
            p * built.values.v[static_cast<size_t>((key * kKvHeads + kv_head) * dim_v + i)];
    }
    for (double& x : out) x /= sum;
    return out;
  }
};

TEST_P(CudaPrefillRedoneRows, AreRightAndChangeNoBitOfTheRowsBesideThem) {
  const BuiltCase calm(make_case()), hot(make_case());
  const std::vector<int> hot_tokens{3, 20, 21, 77};
  for (const int token : hot_tokens) make_hot(hot, token);
  const std::vector<uint16_t> without = outputs(calm), with = outputs(hot);
  const auto row_elements = static_cast<size_t>(hot.spec.head_dim_v);
  for (int token = 0; token < kTokens; ++token)
    for (int head = 0; head < kHeads; ++head) {
      const size_t begin = static_cast<size_t>(token * kHeads + head) * row_elements;
      if (!std::ranges::count(hot_tokens, token)) {
        ASSERT_EQ(std::memcmp(&with[begin], &without[begin], row_elements * sizeof(uint16_t)), 0)
            << "token " << token << " head " << head;
        continue;
      }
      const std::vector<double> row = expected(hot, token, head);
      for (size_t i = 0; i < row_elements; ++i)
        ASSERT_NEAR(from_bf16(with[begin + i]), row[i], 0.02)
            << "token " << token << " head " << head << " column " << i;
    }
}
INSTANTIATE_TEST_SUITE_P(EachHeadDim, CudaPrefillRedoneRows, testing::Values(64, 96, 128, 192, 256));

}  // namespace
}  // namespace attend::testing_cuda
