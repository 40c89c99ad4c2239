// silu(gate) * up, GELU, ReLU, its square, clipping, and gates and factors of rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attend/kernels/norm_rope/cpu/elementwise.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "tests/kernels/dense/elementwise_case.h"
#include "tests/kernels/dense/target.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::kernels {
namespace {

using testing_support::kDims;
using testing_support::kWeightTypes;
using testing_support::NeedsTarget;
using testing_support::targets;
using testing_support::TestTensor;

using SiluMul = NeedsTarget;

TEST_F(SiluMul, MatchesFloat64OverTheWholeRange) {
  for (const auto& target : targets())
    for (const int64_t intermediate : kDims) {
      const TestTensor gate_up = TestTensor::random({2, 2 * intermediate}, DType::kF32, 1, 30.0f);
      TestTensor out({2, intermediate}, DType::kF32);
      target->silu_mul(gate_up, out);
      for (int64_t row = 0; row < 2; ++row)
        for (int64_t i = 0; i < intermediate; ++i) {
          const double gate = gate_up.at(row * 2 * intermediate + i);
          const double up = gate_up.at(row * 2 * intermediate + intermediate + i);
          const double expected = gate / (1.0 + std::exp(-gate)) * up;
          // Below e^-87.3 the factor is a float32 denormal, which may be flushed to zero.
          ASSERT_NEAR(out.at(row * intermediate + i), expected, 1e-6 * std::abs(expected) + 1e-33)
              << *target << " gate " << gate;
        }
    }
}

TEST_F(SiluMul, HandlesExtremes) {
  const std::vector<float> gates = {0.0f,
                                    -0.0f,
                                    88.0f,
                                    -88.0f,
                                    1e30f,
                                    -1e30f,
                                    std::numeric_limits<float>::max(),
                                    -std::numeric_limits<float>::max(),
                                    1e-40f};
  const auto n = static_cast<int64_t>(gates.size());
  for (const auto& target : targets()) {
    TestTensor gate_up({1, 2 * n}, DType::kF32), out({1, n}, DType::kF32);
    gate_up.fill(1.0f);
    for (int64_t i = 0; i < n; ++i) gate_up.set(i, gates[static_cast<size_t>(i)]);
    target->silu_mul(gate_up, out);
    for (int64_t i = 0; i < n; ++i) {
      const double gate = gate_up.at(i), expected = gate / (1.0 + std::exp(-gate));
      EXPECT_NEAR(out.at(i), expected, 1e-6 * std::abs(expected) + 1e-33) << *target << " gate " << gate;
    }
  }
}

// Every instruction set, not only the best of this machine.
class Gelu : public testing::TestWithParam<cpu::Isa> {
 protected:
  void SetUp() override {
    if (GetParam() > cpu::detect_isa()) GTEST_SKIP() << "this machine has no " << cpu::to_string(GetParam());
  }
};

TEST_P(Gelu, MatchesFloat64OverTheWholeRange) {
  for (const int64_t dim : kDims) {
    const TestTensor x = TestTensor::random({2, dim}, DType::kF32, 1, 6.0f);
    TestTensor exact({2, dim}, DType::kF32), tanh({2, dim}, DType::kF32);
    for (int64_t i = 0; i < x.size(); ++i) {
      exact.set(i, static_cast<float>(x.at(i)));
      tanh.set(i, static_cast<float>(x.at(i)));
    }
    cpu::gelu(exact, GetParam());
    cpu::gelu_tanh(tanh, GetParam());
    for (int64_t i = 0; i < x.size(); ++i) {
      const double at = x.at(i), tolerance = 4e-7 * std::max(1.0, std::abs(at));
      ASSERT_NEAR(exact.at(i), at / 2 * std::erfc(-at / std::sqrt(2.0)), tolerance) << at;
      ASSERT_NEAR(tanh.at(i), at / 2 * (1 + std::tanh(0.7978845608 * (at + 0.044715 * at * at * at))),
                  tolerance)
          << at;
    }
  }
}

TEST_P(Gelu, HandlesExtremes) {
  const float largest = std::numeric_limits<float>::max();
  const float inputs[] = {0.0f, -0.0f, 40.0f, -40.0f, 1e30f, -1e30f, largest, -largest, 1e-40f};
  const float expected[] = {0.0f, 0.0f, 40.0f, 0.0f, 1e30f, 0.0f, largest, 0.0f, 5e-41f};
  TestTensor x({1, std::ssize(inputs)}, DType::kF32);
  for (int64_t i = 0; i < x.size(); ++i) x.set(i, inputs[i]);
  cpu::gelu(x, GetParam());
  for (int64_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x.at(i), expected[i], 1e-40) << inputs[i];
}

using GeluOnTargets = NeedsTarget;
TEST_F(GeluOnTargets, MatchesFloat64InRowsOfAnyDtype) {
  for (const auto& target : targets())
    for (const DType activation : kWeightTypes) {
      if (!target->on_gpu() && activation != DType::kF32) continue;
      const double rounding = activation == DType::kF32 ? 4e-7 : activation == DType::kF16 ? 1e-3 : 8e-3;
      for (const int64_t dim : kDims) {
        SCOPED_TRACE(testing::Message() << *target << " " << activation << " dim " << dim);
        const TestTensor x = TestTensor::random({2, dim}, activation, 1, 6.0f);
        TestTensor exact({2, dim}, activation), tanh({2, dim}, activation);
        for (int64_t i = 0; i < x.size(); ++i) {
          exact.set(i, static_cast<float>(x.at(i)));
          tanh.set(i, static_cast<float>(x.at(i)));
        }
        target->gelu(exact);
        target->gelu_tanh(tanh);
        for (int64_t i = 0; i < x.size(); ++i) {
          const double at = x.at(i), tolerance = rounding * std::max(1.0, std::abs(at));
          ASSERT_NEAR(exact.at(i), at / 2 * std::erfc(-at / std::sqrt(2.0)), tolerance) << at;
          ASSERT_NEAR(tanh.at(i), at / 2 * (1 + std::tanh(0.7978845608 * (at + 0.044715 * at * at * at))),
                      tolerance)
              << at;
        }
      }
    }
}

// Rounding of the result, and of sigmoid() in float32.
double rounding_of(DType dtype) { return dtype == DType::kF32 ? 1e-6 : dtype == DType::kF16 ? 1e-3 : 8e-3; }

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Calls test(target, dtype, width) with every dtype of activations that the target supports.
template <class Test>
void for_all_rows(const Test& test) {
  for (const auto& target : targets())
    for (const DType dtype : kWeightTypes) {
      if (!target->on_gpu() && dtype != DType::kF32) continue;
      for (const int64_t dim : kDims) {
        SCOPED_TRACE(testing::Message() << *target << " " << dtype << " dim " << dim);
        test(*target, dtype, dim);
      }
    }
}

void expect_near(const TestTensor& x, const std::vector<double>& expected, DType dtype) {
  ASSERT_EQ(static_cast<size_t>(x.size()), expected.size());
  for (int64_t i = 0; i < x.size(); ++i) {
    const double value = expected[static_cast<size_t>(i)];
    ASSERT_NEAR(x.at(i), value, rounding_of(dtype) * std::max(0.01, std::abs(value))) << "element " << i;
  }
}

using Relu2 = NeedsTarget;
TEST_F(Relu2, SquaresPositiveNumbers) {
  for_all_rows([](const auto& target, DType dtype, int64_t dim) {
    const TestTensor x = TestTensor::random({2, dim}, dtype, 1, 6.0f);
    std::vector<double> expected = x.values();
    for (double& value : expected) value = std::pow(std::max(value, 0.0), 2);
    target.relu2(x);
    expect_near(x, expected, dtype);
  });
}

using PlainActivations = NeedsTarget;
TEST_F(PlainActivations, MatchFloat64) {
  for_all_rows([](const auto& target, DType dtype, int64_t dim) {
    const TestTensor numbers = TestTensor::random({2, dim}, dtype, 1, 6.0f);
    const auto expect = [&](const auto& apply, const auto& in_float64) {
      const TestTensor x = TestTensor::random({2, dim}, dtype, 1, 6.0f);
      std::vector<double> expected = numbers.values();
      for (double& value : expected) value = in_float64(value);
      apply(x);
      expect_near(x, expected, dtype);
    };
    expect([&](const auto& x) { target.relu(x); }, [](double x) { return std::max(x, 0.0); });
    expect([&](const auto& x) { target.silu(x); }, [](double x) { return x / (1.0 + std::exp(-x)); });
    expect([&](const auto& x) { target.clamp(x, 1.5f); }, [](double x) { return std::clamp(x, -1.5, 1.5); });
  });
}

double gate_of(double x, GateFunction function) {
  return function == GateFunction::kSigmoid ? sigmoid(x) : std::log1p(std::exp(x));
}
constexpr GateFunction kGateFunctions[] = {GateFunction::kSigmoid, GateFunction::kSoftplus};

using GateMul = NeedsTarget;
// Gates are between the heads of a wider row, as those of an attention's output.
TEST_F(GateMul, MultipliesEachHeadByItsGates) {
  for_all_rows([](const auto& target, DType dtype, int64_t dim) {
    for (const GateFunction function : kGateFunctions) {
      const TestTensor heads = TestTensor::random({2, 3 * 2 * dim}, dtype, 1, 6.0f);
      const TestTensor x = TestTensor::random({2, 3, dim}, dtype, 2, 2.0f);
      std::vector<double> expected = x.values();
      for (int64_t i = 0; i < x.size(); ++i)
        expected[static_cast<size_t>(i)] *= gate_of(heads.at((2 * (i / dim) + 1) * dim + i % dim), function);
      target.gate_mul(heads.view().split(1, 2 * dim).slice(2, dim, 2 * dim), x, function);
      expect_near(x, expected, dtype);
    }
  });
}

// Enough rows that a CTA of a GPU has several, and a number that leaves the last CTA incomplete.
TEST_F(GateMul, MultipliesHeadsOfManyTokens) {
  constexpr int64_t kTokens = 1403, kHeads = 3;
  for (const auto& target : targets())
    for (const int64_t dim : {64, 40}) {
      const DType dtype = target->activation_for(DType::kBF16);
      SCOPED_TRACE(testing::Message() << *target << " dim " << dim);
      const TestTensor heads = TestTensor::random({kTokens, kHeads * 2 * dim}, dtype, 1, 6.0f);
      const TestTensor x = TestTensor::random({kTokens, kHeads, dim}, dtype, 2, 2.0f);
      std::vector<double> expected = x.values();
      for (int64_t i = 0; i < x.size(); ++i)
        expected[static_cast<size_t>(i)] *= sigmoid(heads.at((2 * (i / dim) + 1) * dim + i % dim));
      target->gate_mul(heads.view().split(1, 2 * dim).slice(2, dim, 2 * dim), x, GateFunction::kSigmoid);
      expect_near(x, expected, dtype);
    }
}

using ScaleByGate = NeedsTarget;
TEST_F(ScaleByGate, MultipliesARowByItsGate) {
  for_all_rows([](const auto& target, DType dtype, int64_t dim) {
    for (const DType gate_dtype : {DType::kF32, dtype})
      for (const GateFunction function : kGateFunctions) {
        const TestTensor gate = TestTensor::random({3, 1}, gate_dtype, 1, 6.0f);
        const TestTensor x = TestTensor::random({3, dim}, dtype, 2, 2.0f);
        std::vector<double> expected = x.values();
        for (int64_t i = 0; i < x.size(); ++i)
          expected[static_cast<size_t>(i)] *= gate_of(gate.at(i / dim), function);
        target.scale_by_gate(gate, x, function);
        expect_near(x, expected, dtype);
      }
  });
}

// Gates follow the heads in a wider row.
TEST_F(ScaleByGate, MultipliesHeadsByAGateEach) {
  for_all_rows([](const auto& target, DType dtype, int64_t dim) {
    const TestTensor wide = TestTensor::random({2, 5 + 3}, dtype, 1, 6.0f);
    const TestTensor x = TestTensor::random({2, 3, dim}, dtype, 2, 2.0f);
    std::vector<double> expected = x.values();
    for (int64_t i = 0; i < x.size(); ++i)
      expected[static_cast<size_t>(i)] *=
          gate_of(wide.at(i / (3 * dim) * 8 + 5 + i / dim % 3), GateFunction::kSoftplus);
    target.scale_by_gate(wide.view().slice(1, 5, 8).split(1, 1), x, GateFunction::kSoftplus);
    expect_near(x, expected, dtype);
  });
}

using CopyHeads = NeedsTarget;
TEST_F(CopyHeads, PadsWithZerosAndCuts) {
  for_all_rows([](const auto& target, DType dtype, int64_t dim) {
    const TestTensor x = TestTensor::random({2, 3, dim}, dtype, 1, 2.0f);
    const TestTensor wider = TestTensor::random({2, 3, dim + 5}, dtype, 2, 2.0f);
    target.copy_heads(x, wider);
    for (int64_t i = 0; i < wider.size(); ++i) {
      const int64_t d = i % (dim + 5);
      ASSERT_EQ(wider.at(i), d < dim ? x.at(i / (dim + 5) * dim + d) : 0.0) << i;
    }
    const TestTensor cut = TestTensor::random({2, 3, dim}, dtype, 3, 2.0f);
    target.copy_heads(wider, cut);
    EXPECT_EQ(cut.values(), x.values());
  });
}

using Xielu = NeedsTarget;
TEST_F(Xielu, IsQuadraticAboveZeroAndExponentialBelow) {
  for_all_rows([](const auto& target, DType dtype, int64_t dim) {
    const TestTensor alphas = TestTensor::random({2}, DType::kF32, 3, 2.0f);
    const double a = std::log1p(std::exp(alphas.at(0))), b = 0.5 + std::log1p(std::exp(alphas.at(1)));
    const TestTensor x = TestTensor::random({3, dim}, dtype, 2, 4.0f);
    std::vector<double> expected = x.values();
    for (double& value : expected)
      value =
          (value > 0.0 ? a * value * value : (std::expm1(std::min(value, -1e-6)) - value) * b) + 0.5 * value;
    target.xielu(x, alphas);
    // e^x - 1 - x loses bits near 0.
    for (int64_t i = 0; i < x.size(); ++i) {
      const double value = expected[static_cast<size_t>(i)];
      ASSERT_NEAR(x.at(i), value, rounding_of(dtype) * std::max(0.2, std::abs(value))) << "element " << i;
    }
  });
}

using Multiply = NeedsTarget;
TEST_F(Multiply, MultipliesColumnsOfAWiderRow) {
  for_all_rows([](const auto& target, DType dtype, int64_t dim) {
    const TestTensor wide = TestTensor::random({2, 3 * dim}, dtype, 1, 2.0f);
    const TestTensor x = TestTensor::random({2, dim}, dtype, 2, 2.0f);
    std::vector<double> expected = x.values();
    for (int64_t i = 0; i < x.size(); ++i)
      expected[static_cast<size_t>(i)] *= wide.at(i / dim * 3 * dim + dim + i % dim);
    target.multiply(wide.view().slice(1, dim, 2 * dim), x);
    expect_near(x, expected, dtype);
  });
}

using Scale = NeedsTarget;
TEST_F(Scale, MultipliesOnlyItsColumns) {
  for_all_rows([](const auto& target, DType dtype, int64_t dim) {
    const TestTensor wide = TestTensor::random({2, 3 * dim}, dtype, 1, 2.0f);
    std::vector<double> expected = wide.values();
    for (int64_t i = 0; i < wide.size(); ++i)
      if (i % (3 * dim) / dim == 1) expected[static_cast<size_t>(i)] *= double{0.7f};
    target.scale(wide.view().slice(1, dim, 2 * dim), 0.7f);
    expect_near(wide, expected, dtype);
  });
}

INSTANTIATE_TEST_SUITE_P(Isas, Gelu, testing::Values(cpu::Isa::kPortable, cpu::Isa::kAvx2, cpu::Isa::kAvx512),
                         [](const auto& isa) { return testing::PrintToString(static_cast<int>(isa.param)); });

}  // namespace
}  // namespace attend::kernels
