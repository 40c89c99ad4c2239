// Operations of models over a Residual. Results do not depend on which pending work a kernel fused.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include "attend/kernels/fused/operations.h"
#include "attend/kernels/fused/vocab_ops.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels {
namespace {

constexpr int64_t kTokens = 5, kHidden = 48, kWide = 32;
constexpr float kEps = 1e-5f;

using Matrix = std::vector<double>;  // [rows, columns] in row-major order

// Float32 tensors on a device with values on the host.
class Step {
 public:
  explicit Step(Device device) : device_(device) {
    if (device.type == DeviceType::kCuda) gpu_.emplace(device);
  }

  Stream& stream() { return gpu_ ? gpu_->get() : cpu_; }
  OpContext context() { return {.stream = stream()}; }

  Tensor random(std::initializer_list<int64_t> shape, Matrix& values) {
    Tensor host = Tensor::empty(shape, DType::kF32);
    std::normal_distribution<float> normal(0.0f, 0.5f);
    values.clear();
    for (float& value : host.span<float>()) values.push_back(value = normal(random_));
    return device_.type == DeviceType::kCuda ? cuda::copy_to(host, device_) : host;
  }
  Tensor empty(std::initializer_list<int64_t> shape) const {
    return Tensor::empty(shape, DType::kF32, device_);
  }
  Tensor upload(std::vector<int32_t> values) const {
    const Tensor host = Tensor::from<int32_t>(values, {std::ssize(values)});
    return device_.type == DeviceType::kCuda ? cuda::copy_to(host, device_) : host;
  }

  Matrix values(const TensorView& view) {
    Tensor host = Tensor::empty({view.num_elements()}, DType::kF32);
    const TensorView flat = view.reshape({view.num_elements()});
    if (device_.type == DeviceType::kCuda) {
      cuda::copy(flat, host, stream());
      cuda::synchronize(stream());
    } else {
      std::copy_n(flat.as<float>(), view.num_elements(), host.as<float>());
    }
    const auto span = host.span<float>();
    return {span.begin(), span.end()};
  }

 private:
  Device device_;
  Stream cpu_;
  std::optional<cuda::OwnedStream> gpu_;
  std::mt19937 random_{7};
};

Matrix normalized(const Matrix& x, const Matrix& weight) {
  Matrix result = x;
  for (int64_t row = 0; row < kTokens; ++row) {
    double squares = 0.0;
    for (int64_t i = 0; i < kHidden; ++i) squares += x[row * kHidden + i] * x[row * kHidden + i];
    for (int64_t i = 0; i < kHidden; ++i)
      result[row * kHidden + i] *= weight[i] / std::sqrt(squares / kHidden + kEps);
  }
  return result;
}

// x W^T for all rows of x.
Matrix product(const Matrix& x, const Matrix& weight, int64_t in_features) {
  const auto num_rows = static_cast<int64_t>(x.size()) / in_features;
  const auto num_outs = static_cast<int64_t>(weight.size()) / in_features;
  Matrix result;
  for (int64_t row = 0; row < num_rows; ++row)
    for (int64_t out = 0; out < num_outs; ++out) {
      double sum = 0.0;
      for (int64_t i = 0; i < in_features; ++i)
        sum += x[row * in_features + i] * weight[out * in_features + i];
      result.push_back(sum);
    }
  return result;
}

void expect_near(const Matrix& got, const Matrix& expected, const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 2e-4) << what << ", element " << i;
}

// Parameters: true for the GPU, and the number of weights that gate and up are split into.
class ResidualOn : public testing::TestWithParam<std::tuple<bool, int>> {
 protected:
  void SetUp() override {
    if (std::get<0>(GetParam()) && cuda::device_count() == 0)
      GTEST_SKIP() << "this machine has no GPU that this build can use";
  }
  static Device device() { return {std::get<0>(GetParam()) ? DeviceType::kCuda : DeviceType::kCpu, 0}; }
};

TEST_P(ResidualOn, HoldsTheSumForAnyExpectedNorm) {
  for (const bool expected_norm_reads : {true, false}) {
    Step step(device());
    Matrix sum, norm_a, norm_b, gate_up, down, head;
    const Tensor sum_t = step.random({kTokens, kHidden}, sum), scratch_t = step.empty({kTokens, kHidden}),
                 gathered_t = step.empty({kTokens, kHidden}),
                 squares_t = step.empty({kTokens, kHidden / kPartialSquaresWidth});
    Residual residual(
        {.sum = sum_t,
         .scratch = scratch_t,
         .gathered = gathered_t,
         .partial_squares = device().type == DeviceType::kCuda ? squares_t.view() : TensorView()});
    const Tensor a_t = step.random({kHidden}, norm_a), b_t = step.random({kHidden}, norm_b);
    const Tensor gate_up_t = step.random({2 * kWide, kHidden}, gate_up),
                 down_t = step.random({kHidden, kWide}, down), head_t = step.random({7, kHidden}, head);
    const Norm a{.weight = a_t, .eps = kEps}, b{.weight = b_t, .eps = kEps};
    std::vector<Linear> parts{{.weight = gate_up_t}};
    if (std::get<1>(GetParam()) == 2)
      parts = {{.weight = gate_up_t.view().slice(0, 0, kWide)},
               {.weight = gate_up_t.view().slice(0, kWide, 2 * kWide)}};

    const Tensor wide_t = step.empty({kTokens, 2 * kWide}), x_t = step.empty({kTokens, kWide});
    for (int layer = 0; layer < 2; ++layer) {
      norm_gated_linear(residual, {.norm = a, .gate_up = parts, .gate_up_out = wide_t, .out = x_t},
                        step.context());
      const Matrix both = product(normalized(sum, norm_a), gate_up, kHidden);
      Matrix x;
      for (int64_t row = 0; row < kTokens; ++row)
        for (int64_t i = 0; i < kWide; ++i) {
          const double gate = both[row * 2 * kWide + i];
          x.push_back(gate / (1.0 + std::exp(-gate)) * both[row * 2 * kWide + kWide + i]);
        }
      expect_near(step.values(x_t), x, "gated");
      residual.expect(expected_norm_reads ? (layer == 0 ? a : b) : (layer == 0 ? b : a));
      linear_add(x_t, {.weight = down_t}, residual, step.context());
      const Matrix added = product(x, down, kWide);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += added[i];
    }

    // Some rows, then all rows with another norm.
    const Tensor rows_t = step.upload({1, 4}), some_t = step.empty({2, 7}), all_t = step.empty({kTokens, 7});
    const Linear head_linear{.weight = head_t};
    norm_linear(residual,
                {.norm = b, .linear = {&head_linear, 1}, .out = some_t, .rows = rows_t.span<int32_t>()},
                step.context());
    const Matrix all_b = product(normalized(sum, norm_b), head, kHidden);
    Matrix some(all_b.begin() + 7, all_b.begin() + 14);
    some.insert(some.end(), all_b.begin() + 28, all_b.begin() + 35);
    expect_near(step.values(some_t), some, "head of some rows");
    norm_linear(residual, {.norm = a, .linear = {&head_linear, 1}, .out = all_t}, step.context());
    expect_near(step.values(all_t), product(normalized(sum, norm_a), head, kHidden), "head of all rows");
  }
}

// Norms after sublayers as in OLMo 2, with and without norms before them as in Gemma.
TEST_P(ResidualOn, NormalizesAddedOutputs) {
  for (const bool norm_before : {true, false}) {
    Step step(device());
    Matrix sum, before, after, gate_up, down, head;
    const Tensor sum_t = step.random({kTokens, kHidden}, sum), scratch_t = step.empty({kTokens, kHidden}),
                 gathered_t = step.empty({kTokens, kHidden}),
                 squares_t = step.empty({kTokens, kHidden / kPartialSquaresWidth});
    Residual residual(
        {.sum = sum_t,
         .scratch = scratch_t,
         .gathered = gathered_t,
         .partial_squares = device().type == DeviceType::kCuda ? squares_t.view() : TensorView()});
    const Tensor before_t = step.random({kHidden}, before), after_t = step.random({kHidden}, after),
                 gate_up_t = step.random({2 * kWide, kHidden}, gate_up),
                 down_t = step.random({kHidden, kWide}, down), head_t = step.random({7, kHidden}, head);
    Norm reads{.weight = {}, .eps = kEps};
    if (norm_before) reads.weight = before_t;
    std::vector<Linear> parts{{.weight = gate_up_t}};
    if (std::get<1>(GetParam()) == 2)
      parts = {{.weight = gate_up_t.view().slice(0, 0, kWide)},
               {.weight = gate_up_t.view().slice(0, kWide, 2 * kWide)}};

    const Tensor wide_t = step.empty({kTokens, 2 * kWide}), x_t = step.empty({kTokens, kWide});
    for (int layer = 0; layer < 2; ++layer) {
      norm_gated_linear(residual,
                        {.norm = reads,
                         .gate_up = parts,
                         .activation = Activation::kGeluTanh,
                         .gate_up_out = wide_t,
                         .out = x_t},
                        step.context());
      const Matrix both = product(norm_before ? normalized(sum, before) : sum, gate_up, kHidden);
      Matrix x;
      for (int64_t row = 0; row < kTokens; ++row)
        for (int64_t i = 0; i < kWide; ++i) {
          const double gate = both[row * 2 * kWide + i];
          const double inner = std::sqrt(2.0 / M_PI) * (gate + 0.044715 * gate * gate * gate);
          x.push_back(0.5 * gate * (1.0 + std::tanh(inner)) * both[row * 2 * kWide + kWide + i]);
        }
      expect_near(step.values(x_t), x, "gated");
      residual.expect(reads);
      linear_add(x_t, {.weight = down_t}, residual, step.context(), {.weight = after_t, .eps = kEps});
      const Matrix added = normalized(product(x, down, kWide), after);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += added[i];
    }
    const Tensor out_t = step.empty({kTokens, 7});
    const Linear head_linear{.weight = head_t};
    norm_linear(residual, {.norm = reads, .linear = {&head_linear, 1}, .out = out_t}, step.context());
    expect_near(step.values(out_t), product(norm_before ? normalized(sum, before) : sum, head, kHidden),
                "head");
  }
}

TEST_P(ResidualOn, SupportsConsecutiveAdds) {
  Step step(device());
  Matrix sum, norm, x, down, head;
  const Tensor sum_t = step.random({kTokens, kHidden}, sum), scratch_t = step.empty({kTokens, kHidden}),
               gathered_t = step.empty({kTokens, kHidden}), norm_t = step.random({kHidden}, norm),
               x_t = step.random({kTokens, kWide}, x), down_t = step.random({kHidden, kWide}, down),
               head_t = step.random({7, kHidden}, head), out_t = step.empty({kTokens, 7});
  Residual residual({.sum = sum_t, .scratch = scratch_t, .gathered = gathered_t});
  const Matrix added = product(x, down, kWide);
  for (int i = 0; i < 3; ++i) {
    linear_add(x_t, {.weight = down_t}, residual, step.context());
    for (size_t j = 0; j < sum.size(); ++j) sum[j] += added[j];
  }
  const Linear head_linear{.weight = head_t};
  norm_linear(residual, {.norm = {.weight = norm_t, .eps = kEps}, .linear = {&head_linear, 1}, .out = out_t},
              step.context());
  expect_near(step.values(out_t), product(normalized(sum, norm), head, kHidden), "head");
}

// Both ends of a model that ties its weights: the stream begins with scaled rows of the table whose product
// gives the logits.
TEST_P(ResidualOn, BeginsWithEmbeddingsAndEndsWithCappedLogits) {
  constexpr int64_t kVocab = 7;
  const std::vector<int32_t> ids{3, 0, 6, 6, 2};
  for (const float cap : {0.0f, 1.5f}) {
    Step step(device());
    Matrix table, norm;
    const Tensor table_t = step.random({kVocab, kHidden}, table), norm_t = step.random({kHidden}, norm),
                 sum_t = step.empty({kTokens, kHidden}), scratch_t = step.empty({kTokens, kHidden}),
                 gathered_t = step.empty({kTokens, kHidden}), ids_t = step.upload(ids);
    Residual residual({.sum = sum_t, .scratch = scratch_t, .gathered = gathered_t});
    embed({.ids = ids_t.span<int32_t>(), .table = table_t, .scale = 2.0f, .out = residual.sum()},
          step.context());
    Matrix sum;
    for (const int32_t id : ids)
      for (int64_t i = 0; i < kHidden; ++i) sum.push_back(2.0 * table[id * kHidden + i]);
    expect_near(step.values(sum_t), sum, "embeddings");

    const Tensor rows_t = step.upload({1, 4}), some_t = step.empty({2, kVocab}),
                 all_t = step.empty({kTokens, kVocab});
    HeadArgs args{.norm = {.weight = norm_t, .eps = kEps},
                  .linear = {.weight = table_t},
                  .rows = rows_t.span<int32_t>(),
                  .logit_cap = cap,
                  .out = some_t};
    head(residual, args, step.context());
    Matrix logits = product(normalized(sum, norm), table, kHidden);
    if (cap > 0.0f)
      for (double& logit : logits) logit = cap * std::tanh(logit / cap);
    Matrix some(logits.begin() + kVocab, logits.begin() + 2 * kVocab);
    some.insert(some.end(), logits.begin() + 4 * kVocab, logits.end());
    expect_near(step.values(some_t), some, "logits of some tokens");
    args.rows = {};
    args.out = all_t;
    head(residual, args, step.context());
    expect_near(step.values(all_t), logits, "logits of all tokens");
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ResidualOn, testing::Combine(testing::Bool(), testing::Values(1, 2)),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param) ? "gpu" : "cpu") + "_parts" +
                                  std::to_string(std::get<1>(each.param));
                         });

}  // namespace
}  // namespace attend::kernels
