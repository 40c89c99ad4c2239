// Batch-invariant GEMM of sm_90, called directly: every tile, split among any number of CTAs, computes the
// bits of the skinny GEMM.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "attend/base/error.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/gemm/cuda/linear.h"
#include "attend/kernels/gemm/cuda/sm90/batch_invariant/batch_invariant_gemm.h"
#include "attend/tensor/cuda.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/dense/cuda/sm90_test.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::kernels::cuda {
namespace {

using attend::cuda::OwnedStream;
using testing_cuda::DeviceCopy;
using testing_cuda::kGpu;
using testing_support::TestTensor;

class Sm90BatchInvariantGemm : public testing_cuda::Sm90Test {};

// Operation applied to the product.
struct Form {
  const char* name;
  bool gated, accumulate;
  DType out_dtype;
};
constexpr Form kForms[] = {{"plain", false, false, DType::kBF16},
                           {"added", false, true, DType::kBF16},
                           {"in float32", false, true, DType::kF32},
                           {"gated", true, false, DType::kBF16}};

struct Case {
  OwnedStream stream{kGpu};
  Form form;
  int64_t num_rows, num_outs;
  TestTensor x, weight, bias, before;
  DeviceCopy device_x, device_weight, device_bias;

  Case(const Form& form_, int64_t num_weight_rows, int64_t in_features, int64_t num_rows_)
      : form(form_),
        num_rows(num_rows_),
        num_outs(form.gated ? num_weight_rows / 2 : num_weight_rows),
        x(TestTensor::random({num_rows, in_features}, DType::kBF16, 1)),
        weight(TestTensor::random({num_weight_rows, in_features}, DType::kBF16, 2, 0.1f)),
        bias(TestTensor::random({num_weight_rows}, DType::kBF16, 3)),
        before(TestTensor::random({num_rows, num_outs}, form.out_dtype, 4)),
        device_x(x, stream.get()),
        device_weight(weight, stream.get()),
        device_bias(bias, stream.get()) {}

  // Calls compute(args of all rows) and returns out.
  template <class Compute>
  std::vector<double> results(const Compute& compute) {
    TestTensor out({num_rows, num_outs}, form.out_dtype);
    for (int64_t i = 0; i < out.size(); ++i)
      out.set(i, form.accumulate ? static_cast<float>(before.at(i)) : NAN);
    const DeviceCopy device_out(out, stream.get());
    compute(LinearArgs{.x = device_x.view(),
                       .weight = device_weight.view(),
                       .bias = device_bias.view(),
                       .out = device_out.view(),
                       .batch_invariant = true,
                       .accumulate = form.accumulate});
    device_out.download(stream.get());
    attend::cuda::synchronize(stream.get());
    return out.values();
  }

  std::vector<double> skinny() {
    constexpr int64_t kAtOnce = 16;
    return results([&](const LinearArgs& all) {
      for (int64_t first = 0; first < num_rows; first += kAtOnce) {
        const int64_t end = std::min(num_rows, first + kAtOnce);
        LinearArgs some = all;
        some.x = all.x.slice(0, first, end);
        some.out = all.out.slice(0, first, end);
        ensure(choose(gemm_problem(some, form.gated), gpu_facts(kGpu)).kernel == GemmKernel::kSkinny,
               "not the skinny GEMM");
        if (form.gated)
          kernels::cuda::gated_linear({.x = some.x,
                                       .weight = some.weight,
                                       .bias = some.bias,
                                       .gate_up = {},
                                       .out = some.out,
                                       .batch_invariant = true},
                                      stream.get());
        else
          kernels::cuda::linear(some, stream.get());
      }
    });
  }
};

// One pair; partial tiles and partial rounds of K-blocks; fewer K-blocks than slices; more tiles than CTAs.
TEST_F(Sm90BatchInvariantGemm, HasTheBitsOfTheSkinnyGemmForAnyWorkSplit) {
  constexpr std::pair<int64_t, int64_t> kShapes[] = {{16, 8}, {208, 200}, {1040, 1032}, {272, 2056}};
  for (const Form& form : kForms)
    for (const auto& [num_weight_rows, in_features] : kShapes)
      for (const int64_t num_rows : {1, 33, 64, 65, 130, 192, 391}) {
        Case test_case(form, num_weight_rows, in_features, num_rows);
        const std::vector<double> expected = test_case.skinny();
        for (const sm90::BatchInvariantGemmTile& tile : sm90::kBatchInvariantTiles)
          for (const int num_ctas : {1, 3, 132}) {
            const std::vector<double> results = test_case.results([&](const LinearArgs& args) {
              sm90::batch_invariant_gemm(args, form.gated, {tile, num_ctas}, test_case.stream.get());
            });
            ASSERT_TRUE(results == expected)
                << form.name << ": " << num_rows << " rows, " << num_weight_rows << " of " << in_features
                << ", tiles of " << tile.rows << " x " << tile.features << ", " << num_ctas << " CTAs";
          }
      }
}

TEST_F(Sm90BatchInvariantGemm, RejectsUnsupportedTiles) {
  Case test_case(kForms[0], 16, 64, 3);
  EXPECT_THROW(test_case.results([&](const LinearArgs& args) {
    sm90::batch_invariant_gemm(args, false, {{64, 64}, 1}, test_case.stream.get());
  }),
               Error);
}

// A layer of a decode step has about one tile per SM. A layer of a prompt has the tiles that read the least
// memory.
TEST(BatchInvariantShape, FillsTheSms) {
  const auto features = [](int64_t num_rows, int64_t num_weight_rows) {
    return sm90::batch_invariant_shape_for(num_rows, num_weight_rows, 64, 132).tile.features;
  };
  EXPECT_EQ(features(64, 4096), 32);
  EXPECT_EQ(features(128, 6144), 48);
  EXPECT_EQ(features(128, 28672), 112);
  EXPECT_EQ(sm90::batch_invariant_shape_for(8192, 28672, 64, 132).tile,
            (sm90::BatchInvariantGemmTile{192, 128}));
}

}  // namespace
}  // namespace attend::kernels::cuda
