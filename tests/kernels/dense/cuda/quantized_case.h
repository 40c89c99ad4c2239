// Product with a quantized weight on the GPU, for tests that call a kernel directly.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/gemm/cuda/linear.h"
#include "attend/kernels/gemm/weights.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/dense/quantized_weight.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::testing_cuda {

// x, a weight, and the initial contents of out.
struct QuantizedCase {
  cuda::OwnedStream stream{kGpu};
  std::unique_ptr<testing_support::TestWeight> weight;
  testing_support::TestTensor x;
  DeviceCopy codes, scales, zeros, device_x;

  QuantizedCase(const testing_support::Format& format, DType x_dtype, int64_t num_rows, int64_t weight_rows,
                int64_t in_features)
      : weight(testing_support::random_weight(format, weight_rows, in_features)),
        x(testing_support::TestTensor::random({num_rows, in_features}, x_dtype, 1)),
        codes(weight->view.data, stream.get()),
        scales(weight->view.scales, stream.get()),
        zeros(weight->view.zeros, stream.get()),
        device_x(x, stream.get()) {}

  // Computes rows [first, last) of x with launch(args, gated, stream), the kernel of this row of the table.
  template <class Launch>
  std::vector<double> run(kernels::cuda::GemmKernel kernel, const Launch& launch, int64_t first, int64_t last,
                          bool gated, float before = 0.0f, const kernels::InputNorm& norm = {},
                          const TensorView& bias = {}) {
    const int64_t num_outs = weight->view.out_features() / (gated ? 2 : 1);
    testing_support::TestTensor out({last - first, num_outs}, DType::kF32);
    out.fill(before == 0.0f ? std::numeric_limits<float>::quiet_NaN() : before);
    const DeviceCopy device_out(out, stream.get());
    Weight on_device = weight->view;
    on_device.data = codes.view();
    on_device.scales = scales.view();
    if (!on_device.zeros.empty()) on_device.zeros = zeros.view();
    const kernels::LinearArgs args{.x = device_x.view().slice(0, first, last),
                                   .weight = on_device,
                                   .bias = bias,
                                   .out = device_out.view(),
                                   .norm = norm,
                                   .accumulate = before != 0.0f};
    const kernels::cuda::GemmProblem problem = kernels::cuda::gemm_problem(args, gated);
    EXPECT_TRUE(kernels::cuda::gemm_row(kernel).supports(problem, kernels::cuda::gpu_facts(kGpu)));
    launch(args, gated, stream.get());
    device_out.download(stream.get());
    cuda::synchronize(stream.get());
    return out.values();
  }

  struct Sum {
    double value = 0.0, magnitude = 0.0;
  };
  Sum sum(int64_t row, const std::vector<double>& elements) const {
    Sum sum;
    for (size_t i = 0; i < elements.size(); ++i) {
      const double term = x.at(row * std::ssize(elements) + static_cast<int64_t>(i)) * elements[i];
      sum.value += term;
      sum.magnitude += std::abs(term);
    }
    return sum;
  }

  // Compares some outputs of rows [0, num_rows) with float64. `tolerance` is relative to the sum of
  // magnitudes.
  void expect_near_float64(const std::vector<double>& got, int64_t num_rows, double tolerance) const {
    const int64_t num_outs = weight->view.out_features();
    const int64_t row_step = 1 + num_rows / 12, out_step = 1 + num_outs / 150;
    for (int64_t o = 0; o < num_outs; o += out_step) {
      const std::vector<double> elements = kernels::reference::weight_row(weight->view, o);
      for (int64_t row = o % row_step; row < num_rows; row += row_step) {
        const Sum expected = sum(row, elements);
        ASSERT_NEAR(got[static_cast<size_t>(row * num_outs + o)], expected.value,
                    tolerance * expected.magnitude)
            << "row " << row << ", output " << o;
      }
    }
  }
};

}  // namespace attend::testing_cuda
