// Embedding rows, and rows with requested logits.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attend/kernels/norm_rope/elementwise.h"
#include "tests/kernels/dense/elementwise_case.h"
#include "tests/kernels/dense/target.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing_support::error_message;
using testing_support::kDims;
using testing_support::kWeightTypes;
using testing_support::NeedsTarget;
using testing_support::targets;
using testing_support::TestTensor;

using Embedding = NeedsTarget;
using AddEmbedding = NeedsTarget;
using GatherRows = NeedsTarget;

TEST_F(Embedding, CopiesTheRowOfEachId) {
  const std::vector<int32_t> ids = {4, 0, 6, 4};
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes)
      for (const int64_t hidden : kDims) {
        const TestTensor table = TestTensor::random({7, hidden}, dtype, 1);
        TestTensor out({4, hidden}, DType::kF32);
        target->embedding(ids, table, out);
        for (int64_t row = 0; row < 4; ++row)
          for (int64_t i = 0; i < hidden; ++i)
            ASSERT_EQ(out.at(row * hidden + i), table.at(ids[static_cast<size_t>(row)] * hidden + i))
                << *target << " " << dtype << " hidden " << hidden;
      }
}

TEST_F(AddEmbedding, AddsTheRowOfEachId) {
  const std::vector<int32_t> ids = {4, 0, 6};
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes)
      for (const int64_t hidden : kDims) {
        const TestTensor table = TestTensor::random({7, hidden}, dtype, 1);
        TestTensor out = TestTensor::random({3, hidden}, DType::kF32, 2);
        const std::vector<double> before = out.values();
        target->add_embedding(ids, table, out);
        for (int64_t i = 0; i < out.size(); ++i) {
          const double row = table.at(ids[static_cast<size_t>(i / hidden)] * hidden + i % hidden);
          ASSERT_EQ(out.at(i), static_cast<float>(before[static_cast<size_t>(i)]) + static_cast<float>(row))
              << *target << " " << dtype << " hidden " << hidden;
        }
      }
}

TEST_F(Embedding, RejectsAnIdBeyondTheTable) {
  const TestTensor table({7, 8}, DType::kBF16), out({2, 8}, DType::kF32);
  Stream stream;
  for (const int32_t bad : {7, -1}) {
    const std::vector<int32_t> ids = {0, bad};
    EXPECT_EQ(error_message(ErrorCode::kInvalidArgument, [&] { embedding(ids, table, out, stream); }),
              "ids[1] = " + std::to_string(bad) + ": table has 7 rows");
  }
}

TEST_F(GatherRows, CopiesTheSelectedRows) {
  const std::vector<int32_t> rows = {5, 0, 5};
  for (const auto& target : targets())
    for (const int64_t hidden : kDims) {
      const TestTensor wide = TestTensor::random({6, hidden + 3}, DType::kF32, 1);
      TestTensor out({3, hidden}, DType::kF32);
      target->gather_rows(wide.view().slice(1, 2, hidden + 2), rows, out);
      for (int64_t row = 0; row < 3; ++row)
        for (int64_t i = 0; i < hidden; ++i)
          ASSERT_EQ(out.at(row * hidden + i), wide.at(rows[static_cast<size_t>(row)] * (hidden + 3) + 2 + i));
    }
}

}  // namespace
}  // namespace attend::kernels
