// Kernels between attention calls of a step do not allocate heap memory after their first run.
#include <gtest/gtest.h>

#include <vector>

#include "attend/kernels/gemm/linear.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/norm_rope/rope.h"
#include "attend/kernels/sampling/sampling.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/support/count_allocations.h"

namespace attend::kernels {
namespace {

using testing_support::num_allocations;
using testing_support::TestTensor;

struct Step {
  static constexpr int64_t kDim = 256, kVocab = 3000;
  explicit Step(int64_t num_rows)
      : x(TestTensor::random({num_rows, kDim}, DType::kF32, 1)),
        residual({num_rows, kDim}, DType::kF32),
        gate_up({num_rows, 2 * kDim}, DType::kF32),
        logits({num_rows, kVocab}, DType::kF32),
        table(TestTensor::random({kVocab, kDim}, DType::kBF16, 2)),
        weight(TestTensor::random({2 * kDim, kDim}, DType::kF16, 3)),
        norm(TestTensor::random({kDim}, DType::kF32, 4)),
        angles(TestTensor::random({8, 16}, DType::kF32, 5)),
        indices(static_cast<size_t>(num_rows), 3),
        ids(static_cast<size_t>(num_rows)),
        rules(static_cast<size_t>(num_rows),
              {.temperature = 0.9f, .top_k = 40, .top_p = 0.9f, .min_p = 0.01f}) {}

  void run() {
    embedding(indices, table, x, stream);
    rms_norm(x, norm, 1e-6f, residual, stream);
    add_rms_norm(x, residual, norm, 1e-6f, x, stream);
    rope(x.view().split(1, 32), indices, angles, angles, stream);
    linear({.x = x, .weight = weight, .bias = {}, .out = gate_up}, stream);
    silu_mul(gate_up, x, stream);
    linear({.x = x, .weight = table, .bias = {}, .out = logits}, stream);
    argmax(logits, ids, stream);
    sample(logits, rules, ids, stream);
  }

  TestTensor x, residual, gate_up, logits, table, weight, norm, angles;
  std::vector<int32_t> indices, ids;
  std::vector<SamplingRule> rules;
  Stream stream;
};

TEST(DenseKernels, AllocateNothingAfterTheirFirstRun) {
  for (const int64_t num_rows : {4, 100}) {
    Step step(num_rows);
    step.run();
    const int64_t before = num_allocations();
    for (int repeat = 0; repeat < 3; ++repeat) step.run();
    EXPECT_EQ(num_allocations(), before) << num_rows << " rows";
  }
}

}  // namespace
}  // namespace attend::kernels
