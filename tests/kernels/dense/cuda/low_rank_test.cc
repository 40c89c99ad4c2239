// Low-rank adapters on a GPU, compared with float64.
#include "attend/kernels/gemm/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <list>
#include <utility>
#include <vector>

#include "attend/kernels/gemm/cuda/common/low_rank_entries.h"
#include "attend/kernels/gemm/token_groups.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/cuda/support/needs_gpu.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::kernels {
namespace {

using testing_cuda::DeviceArrays;
using testing_cuda::DeviceCopy;
using testing_cuda::kGpu;
using testing_support::kWeightTypes;
using testing_support::TestTensor;

using LowRankGpu = testing_cuda::NeedsGpu;

constexpr float kScale = 0.75f;

// Adapter with two layers of the same inputs: one term for all outputs; two terms for different outputs with
// a gap between them, the second of another rank.
struct TestAdapter {
  struct Term {
    TestTensor a, b;
    int64_t first_out;
    float scale;
  };
  std::vector<std::list<Term>> layers;
  DeviceAdapter device;

  TestAdapter(int64_t in_features, int64_t out_features, int64_t rank, DType dtype, uint64_t seed) {
    const auto term = [&](int64_t term_rank, int64_t first, int64_t num_outputs, float scale) {
      seed += 2;
      const auto deviation = static_cast<float>(1.0 / std::sqrt(static_cast<double>(in_features)));
      return Term{TestTensor::random({in_features, term_rank}, dtype, seed, deviation),
                  TestTensor::random({term_rank, num_outputs}, dtype, seed + 1), first, scale};
    };
    layers.resize(2);
    layers[0].push_back(term(rank, 0, out_features, kScale));
    layers[1].push_back(term(rank, 0, out_features / 3, -kScale));
    layers[1].push_back(term(5, out_features / 2, out_features - out_features / 2, 2.0f));
    LowRankAdapter host{.layers = {{}, {}}, .max_rank = rank + 5};
    for (size_t i = 0; i < layers.size(); ++i)
      for (const Term& one : layers[i])
        host.layers[i].push_back({.a = one.a, .b = one.b, .scale = one.scale, .first_out = one.first_out});
    device = copy_to(host, dtype, kGpu);
  }
};

// Arrays of a step at fixed addresses, refilled for each one.
class Step {
 public:
  Step(int64_t num_tokens, int64_t row_floats)
      : memory_(attend::cuda::zeros({1 << 16}, DType::kU8, kGpu)),
        products_(attend::cuda::zeros({num_tokens, row_floats}, DType::kF32, kGpu)),
        row_floats_(row_floats) {}

  // `num_listed`: tokens of which those without an adapter are listed, too.
  LowRankArrays upload(View<const AdapterRun> runs, int segment_tokens, int max_segments, Stream& stream,
                       int64_t num_listed = 0) {
    TokenGroups groups;
    groups.build(runs, segment_tokens);
    const auto num_segments = static_cast<int32_t>(groups.groups.size());
    if (num_listed > 0) groups.add_others(num_listed, segment_tokens);
    EXPECT_LE(std::ssize(groups.groups), max_segments);
    std::vector<std::byte> bytes(1 << 16);
    auto* const header = reinterpret_cast<LowRankHeader*>(bytes.data());
    *header = {.products = products_.as<float>(),
               .row_floats = static_cast<int32_t>(row_floats_),
               .num_segments = num_segments,
               .num_all_segments = static_cast<int32_t>(groups.groups.size())};
    auto* const segments = reinterpret_cast<LowRankSegment*>(header + 1);
    for (size_t i = 0; i < groups.groups.size(); ++i)
      segments[i] = {.table = groups.groups[i].adapter ? groups.groups[i].adapter->table : nullptr,
                     .first = static_cast<int32_t>(groups.groups[i].first),
                     .count = static_cast<int32_t>(groups.groups[i].count)};
    auto* const tokens = reinterpret_cast<int32_t*>(segments + max_segments);
    std::ranges::copy(groups.tokens, tokens);
    attend::cuda::copy(TensorView::contiguous(bytes.data(), DType::kU8, {1 << 16}), memory_, stream);
    auto* const on_device = static_cast<std::byte*>(memory_.view().data);
    const auto at = [&](const void* host) {
      return on_device + (static_cast<const std::byte*>(host) - bytes.data());
    };
    return {.header = reinterpret_cast<const LowRankHeader*>(at(header)),
            .segments = reinterpret_cast<const LowRankSegment*>(at(segments)),
            .tokens = reinterpret_cast<const int32_t*>(at(tokens)),
            .max_segments = max_segments,
            .segment_tokens = segment_tokens,
            .lists_all = num_listed > 0};
  }

 private:
  Tensor memory_, products_;
  int64_t row_floats_;
};

// Adds the terms in float64; `magnitudes`: sums of absolute values. `factors`: of a norm of x, per token.
void add_expected(const TestAdapter& adapter, size_t layer, const TestTensor& x, int64_t in_features,
                  const AdapterRun& run, const std::vector<double>& factors, int64_t out_features,
                  std::vector<double>& sums, std::vector<double>& magnitudes) {
  const int64_t stride = x.view().shape[1];
  const std::vector<double> xs = x.values();
  const auto element = [](const std::vector<double>& values, int64_t i) {
    return values[static_cast<size_t>(i)];
  };
  for (const TestAdapter::Term& term : adapter.layers[layer]) {
    const int64_t rank = term.a.view().shape[1], num_outputs = term.b.view().shape[1];
    const std::vector<double> as = term.a.values(), bs = term.b.values();
    for (int64_t token = run.first_token; token < run.first_token + run.num_tokens; ++token)
      for (int64_t r = 0; r < rank; ++r) {
        double product = 0.0, magnitude = 0.0;
        for (int64_t i = 0; i < in_features; ++i) {
          const double one =
              element(factors, token) * element(xs, token * stride + i) * element(as, i * rank + r);
          product += one;
          magnitude += std::abs(one);
        }
        for (int64_t out = 0; out < num_outputs; ++out) {
          const double factor = static_cast<double>(term.scale) * element(bs, r * num_outputs + out);
          const auto index = static_cast<size_t>(token * out_features + term.first_out + out);
          sums[index] += product * factor;
          // A x is rounded to the dtype of x, and its sum is exact to float32.
          magnitudes[index] += std::abs(product * factor) + 1e-3 * magnitude * std::abs(factor);
        }
      }
  }
}

double tolerance(DType dtype) {
  // Half a unit in the last place of A x and of the output, and some room.
  return dtype == DType::kF32 ? 2e-6 : dtype == DType::kF16 ? 1.0 / 1024 : 1.0 / 128;
}

struct Shape {
  int64_t in_features, out_features, rank;
};
// Less than a K-block, several, a partial one that ends within eight inputs; outputs that are no multiple of
// eight, and several CTAs; ranks of one and several steps of an mma, and more than a pass.
constexpr Shape kShapes[] = {{64, 64, 1},     {40, 24, 16},    {75, 37, 7},      {512, 96, 16},
                             {1000, 300, 33}, {1536, 800, 64}, {2056, 2500, 256}};

TEST_F(LowRankGpu, AddsTheTermsOfEachTokensAdapter) {
  attend::cuda::OwnedStream own(kGpu);
  Stream& stream = own.get();
  constexpr int64_t kTokens = 150;
  for (const DType dtype : kWeightTypes)
    for (const Shape& shape : kShapes)
      for (const size_t layer : {0, 1}) {
        const TestAdapter first(shape.in_features, shape.out_features, shape.rank, dtype, 1),
            second(shape.in_features, shape.out_features, 16, dtype, 100);
        // Tokens 3 to 9 and 149 have none.
        const AdapterRun runs[] = {{0, 3, &first.device.adapter},
                                   {10, 1, &second.device.adapter},
                                   {11, 70, &first.device.adapter},
                                   {81, 2, &second.device.adapter},
                                   {83, 66, &first.device.adapter}};
        // Rows of x are aligned to 16 bytes, or not.
        const int64_t x_stride = shape.in_features + (shape.in_features % 8 == 0 ? 8 : 6);
        const TestTensor x = TestTensor::random({kTokens, x_stride}, dtype, 11);
        const TestTensor before = TestTensor::random({kTokens, shape.out_features}, dtype, 12);
        std::vector<double> expected = before.values(), magnitudes(expected.size());
        for (size_t i = 0; i < expected.size(); ++i) magnitudes[i] = std::abs(expected[i]) + 0.01;
        for (const AdapterRun& run : runs)
          add_expected(run.adapter == &first.device.adapter ? first : second, layer, x, shape.in_features,
                       run, std::vector<double>(kTokens, 1.0), shape.out_features, expected, magnitudes);
        const DeviceCopy device_x(x, stream);
        Step step(kTokens, std::max(first.device.adapter.row_floats, second.device.adapter.row_floats));
        for (const int segment_tokens : {cuda::kSmallSegment, cuda::kLargeSegment}) {
          SCOPED_TRACE(testing::Message() << to_string(dtype) << ", " << shape.in_features << " -> "
                                          << shape.out_features << ", rank " << shape.rank << ", segments of "
                                          << segment_tokens << ", layer " << layer);
          const TestTensor out({kTokens, shape.out_features}, dtype);
          std::memcpy(out.view().data, before.view().data, before.view().num_bytes());
          const DeviceCopy device_out(out, stream);
          // More segments are possible than there are.
          const AdapterBatch batch{.arrays = step.upload(runs, segment_tokens, 40, stream)};
          const LowRankInput input{.x = device_x.view().slice(1, 0, shape.in_features)};
          const LowRankProduct product[] = {{static_cast<int>(layer), device_out.view()}};
          shrink_low_rank(input, product, batch, stream);
          expand_low_rank(input, product, batch, stream);
          device_out.download(stream);
          attend::cuda::synchronize(stream);
          for (size_t i = 0; i < expected.size(); ++i)
            ASSERT_NEAR(out.at(static_cast<int64_t>(i)), expected[i], tolerance(dtype) * magnitudes[i])
                << "token " << i / static_cast<size_t>(shape.out_features) << ", output "
                << i % static_cast<size_t>(shape.out_features);
        }
      }
}

TEST_F(LowRankGpu, GivesATokenTheSameBitsInEveryStep) {
  attend::cuda::OwnedStream own(kGpu);
  Stream& stream = own.get();
  constexpr int64_t kTokens = 70, kIns = 1100, kOuts = 530;
  for (const DType dtype : kWeightTypes) {
    SCOPED_TRACE(to_string(dtype));
    const TestAdapter adapter(kIns, kOuts, 24, dtype, 1), other(kIns, kOuts, 100, dtype, 50);
    const TestTensor x = TestTensor::random({kTokens, kIns}, dtype, 2);
    const DeviceCopy device_x(x, stream);
    Step step(kTokens, other.device.adapter.row_floats);
    const auto run = [&](View<const AdapterRun> runs, int segment_tokens, int max_segments) {
      const TestTensor out({kTokens, kOuts}, dtype);
      const DeviceCopy device_out(out, stream);
      const AdapterBatch batch{.arrays = step.upload(runs, segment_tokens, max_segments, stream)};
      const LowRankProduct product[] = {{1, device_out.view()}};
      shrink_low_rank({.x = device_x.view()}, product, batch, stream);
      expand_low_rank({.x = device_x.view()}, product, batch, stream);
      device_out.download(stream);
      attend::cuda::synchronize(stream);
      return out.values();
    };
    const AdapterRun all[] = {{0, kTokens, &adapter.device.adapter}};
    const std::vector<double> together = run(all, cuda::kLargeSegment, 2);
    EXPECT_EQ(run(all, cuda::kSmallSegment, 5), together);
    EXPECT_EQ(run(all, cuda::kSmallSegment, 300), together);
    // Every other token has another adapter.
    std::vector<AdapterRun> mixed;
    for (int64_t token = 0; token < kTokens; ++token)
      mixed.push_back({token, 1, token % 2 == 0 ? &adapter.device.adapter : &other.device.adapter});
    const std::vector<double> alternating = run(mixed, cuda::kSmallSegment, 70);
    for (int64_t token = 0; token < kTokens; token += 2)
      for (int64_t i = token * kOuts; i < (token + 1) * kOuts; ++i)
        ASSERT_EQ(alternating[static_cast<size_t>(i)], together[static_cast<size_t>(i)]) << "token " << token;
  }
}

TEST_F(LowRankGpu, AppliesADeferredNorm) {
  attend::cuda::OwnedStream own(kGpu);
  Stream& stream = own.get();
  constexpr int64_t kTokens = 40, kIns = 640, kOuts = 100;
  constexpr float kEps = 1e-5f;
  for (const DType dtype : kWeightTypes) {
    SCOPED_TRACE(to_string(dtype));
    const TestAdapter adapter(kIns, kOuts, 16, dtype, 1);
    const TestTensor weighted = TestTensor::random({kTokens, kIns}, dtype, 2),
                     squares({kTokens, kIns / kPartialSquaresWidth}, DType::kF32), weight({kIns}, dtype);
    std::vector<double> factors;
    for (int64_t token = 0; token < kTokens; ++token) {
      double sum = 0.0;
      for (int64_t i = 0; i < squares.view().shape[1]; ++i) {
        squares.view()[token].as<float>()[i] = static_cast<float>(1 + token + i % 7);
        sum += static_cast<double>(1 + token + i % 7);
      }
      factors.push_back(1.0 / std::sqrt(sum / kIns + static_cast<double>(kEps)));
    }
    const AdapterRun runs[] = {{0, 20, &adapter.device.adapter}, {30, 10, &adapter.device.adapter}};
    const TestTensor out({kTokens, kOuts}, DType::kF32);
    std::vector<double> expected = out.values(), magnitudes(expected.size(), 0.01);
    for (const AdapterRun& run : runs)
      add_expected(adapter, 0, weighted, kIns, run, factors, kOuts, expected, magnitudes);
    const DeviceCopy device_x(weighted, stream), device_squares(squares, stream),
        device_weight(weight, stream), device_out(out, stream);
    Step step(kTokens, adapter.device.adapter.row_floats);
    const AdapterBatch batch{.arrays = step.upload(runs, cuda::kSmallSegment, 8, stream)};
    const LowRankInput input{.x = device_x.view(),
                             .norm = {.weight = device_weight.view(),
                                      .eps = kEps,
                                      .normalized = device_x.view(),
                                      .partial_squares = device_squares.view(),
                                      .deferred = true}};
    const LowRankProduct product[] = {{0, device_out.view()}};
    shrink_low_rank(input, product, batch, stream);
    expand_low_rank(input, product, batch, stream);
    device_out.download(stream);
    attend::cuda::synchronize(stream);
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(out.at(static_cast<int64_t>(i)), expected[i], tolerance(dtype) * magnitudes[i]);
  }
}

TEST_F(LowRankGpu, ActivatesGatesWithTheBitsOfSeparateLaunches) {
  attend::cuda::OwnedStream own(kGpu);
  Stream& stream = own.get();
  constexpr int64_t kTokens = 45, kIns = 600;
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (const int64_t intermediate : {32, 160, 352}) {
      SCOPED_TRACE(testing::Message() << to_string(dtype) << ", " << intermediate << " features");
      // Terms of gate and up by themselves, of both together, and of up only.
      const auto half = [&](int64_t rank, int64_t num_outputs, uint64_t seed) {
        return std::pair(TestTensor::random({kIns, rank}, dtype, seed, 0.05f),
                         TestTensor::random({rank, num_outputs}, dtype, seed + 1));
      };
      const auto gate = half(16, intermediate, 1), up = half(40, intermediate, 3),
                 both = half(7, 2 * intermediate, 5);
      const auto adapter = [&](std::vector<LowRankTerm> terms) {
        return copy_to({.layers = {std::move(terms)}, .max_rank = 56}, dtype, kGpu);
      };
      const DeviceAdapter separate =
          adapter({{.a = gate.first, .b = gate.second, .scale = 0.5f, .first_out = 0},
                   {.a = up.first, .b = up.second, .scale = 2.0f, .first_out = intermediate}});
      const DeviceAdapter joint =
          adapter({{.a = both.first, .b = both.second, .scale = 1.5f, .first_out = 0}});
      const DeviceAdapter single =
          adapter({{.a = up.first, .b = up.second, .scale = 1.0f, .first_out = intermediate}});
      const AdapterRun runs[] = {
          {0, 20, &separate.adapter}, {25, 3, &joint.adapter}, {30, 10, &single.adapter}};
      const TestTensor x = TestTensor::random({kTokens, kIns}, dtype, 11),
                       gate_up = TestTensor::random({kTokens, 2 * intermediate}, dtype, 12),
                       fused({kTokens, intermediate}, dtype), expected({kTokens, intermediate}, dtype);
      const DeviceCopy device_x(x, stream), device_gate_up(gate_up, stream), device_fused(fused, stream),
          device_expected(expected, stream);
      Step step(kTokens, separate.adapter.row_floats);
      const AdapterBatch batch{.arrays = step.upload(runs, cuda::kSmallSegment, 50, stream, kTokens)};
      const LowRankProduct product[] = {{0, device_gate_up.view()}};
      shrink_low_rank({.x = device_x.view()}, product, batch, stream);
      ASSERT_TRUE(
          expand_low_rank_silu_mul({.x = device_x.view()}, product[0], batch, device_fused.view(), stream));
      expand_low_rank({.x = device_x.view()}, product, batch, stream);
      silu_mul(device_gate_up.view(), device_expected.view(), stream);
      device_fused.download(stream);
      device_expected.download(stream);
      attend::cuda::synchronize(stream);
      EXPECT_EQ(fused.values(), expected.values());
    }
}

TEST_F(LowRankGpu, ServesAnyAdaptersFromOneGraph) {
  attend::cuda::OwnedStream own(kGpu);
  Stream& stream = own.get();
  constexpr int64_t kTokens = 24, kIns = 1024, kOuts = 700;
  constexpr DType kDtype = DType::kBF16;
  const TestAdapter first(kIns, kOuts, 16, kDtype, 1), second(kIns, kOuts, 64, kDtype, 50);
  const TestTensor x = TestTensor::random({kTokens, kIns}, kDtype, 2), out({kTokens, kOuts}, kDtype);
  const DeviceCopy device_x(x, stream), device_out(out, stream);
  Step step(kTokens, second.device.adapter.row_floats);
  const LowRankProduct product[] = {{1, device_out.view()}};
  const auto queue = [&](const LowRankArrays& arrays) {
    attend::cuda::copy(attend::cuda::zeros({kTokens, kOuts}, kDtype, kGpu), device_out.view(), stream);
    shrink_low_rank({.x = device_x.view()}, product, {.arrays = arrays}, stream);
    expand_low_rank({.x = device_x.view()}, product, {.arrays = arrays}, stream);
  };
  const auto result = [&] {
    device_out.download(stream);
    attend::cuda::synchronize(stream);
    return out.values();
  };
  // Recorded without any adapter.
  const LowRankArrays arrays = step.upload({}, cuda::kSmallSegment, kTokens, stream);
  const Tensor zeros = attend::cuda::zeros({kTokens, kOuts}, kDtype, kGpu);
  attend::cuda::synchronize(stream);
  attend::cuda::Graph graph(stream, [&] {
    attend::cuda::copy(zeros, device_out.view(), stream);
    shrink_low_rank({.x = device_x.view()}, product, {.arrays = arrays}, stream);
    expand_low_rank({.x = device_x.view()}, product, {.arrays = arrays}, stream);
  });
  std::vector<std::vector<AdapterRun>> steps = {{}, {{3, 1, &second.device.adapter}}};
  auto& all = steps.emplace_back();
  for (int64_t token = 0; token < kTokens; ++token)
    all.push_back({token, 1, token % 3 == 0 ? &first.device.adapter : &second.device.adapter});
  steps.push_back({{0, kTokens, &first.device.adapter}});
  for (const std::vector<AdapterRun>& runs : steps) {
    step.upload(runs, cuda::kSmallSegment, kTokens, stream);
    graph.launch(stream);
    const std::vector<double> replayed = result();
    queue(step.upload(runs, cuda::kSmallSegment, kTokens, stream));
    EXPECT_EQ(replayed, result()) << runs.size() << " runs";
    double sum = 0.0;
    for (const double value : replayed) sum += std::abs(value);
    EXPECT_EQ(sum > 0.0, !runs.empty());
  }
}

}  // namespace
}  // namespace attend::kernels
