// Properties of sampling on the GPU in addition to the tests shared with the CPU.
#include "attend/kernels/sampling/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/cuda/support/needs_gpu.h"

namespace attend::testing_cuda {
namespace {

using kernels::SamplingRule;
using CudaSampling = NeedsGpu;

// Tokens sampled on the GPU.
std::vector<int32_t> sampled(const Tensor& logits, std::span<const SamplingRule> rules) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  DeviceArrays arrays(stream);
  const Tensor ids = Tensor::zeros({std::ssize(rules)}, DType::kI32);
  const DeviceCopy device_logits(logits, stream), device_ids(ids, stream);
  kernels::sample(device_logits.view(), arrays.view(rules), device_ids.view().span<int32_t>(), stream);
  device_ids.download(stream);
  cuda::synchronize(stream);
  return {ids.span<int32_t>().begin(), ids.span<int32_t>().end()};
}

Tensor normal_logits(int64_t num_rows, int64_t vocab_size, float deviation) {
  const Tensor logits = Tensor::empty({num_rows, vocab_size}, DType::kF32);
  std::mt19937_64 generator(11);
  std::normal_distribution<float> normal(0.0f, deviation);
  for (float& logit : logits.span<float>()) logit = normal(generator);
  return logits;
}

void expect_tokens_of_the_cpu(size_t num_rows, int64_t vocab_size) {
  const Tensor logits = normal_logits(static_cast<int64_t>(num_rows), vocab_size, 2.5f);
  const SamplingRule kinds[] = {{.temperature = 0.0f},
                                {},
                                {.temperature = 0.7f, .top_k = 50},
                                {.top_p = 0.9f},
                                {.min_p = 0.05f},
                                {.temperature = 1.3f, .top_k = 1000, .top_p = 0.95f, .min_p = 0.001f}};
  std::vector<SamplingRule> rules;
  for (size_t row = 0; row < num_rows; ++row) {
    rules.push_back(kinds[row % std::size(kinds)]);
    rules.back().seed = row;
    rules.back().step = 3 * row;
  }
  std::vector<int32_t> expected(num_rows);
  Stream host;
  kernels::sample(logits, rules, expected, host);
  EXPECT_EQ(sampled(logits, rules), expected);
}

TEST_F(CudaSampling, MatchesTheCpu) { expect_tokens_of_the_cpu(64, 128256); }

// Rows of odd size have arbitrary alignment, and their slices exceed shared memory.
TEST_F(CudaSampling, SamplesTheTokensOfTheCpuFromAVocabularyOfOddSize) {
  expect_tokens_of_the_cpu(12, 200003);
}

// Numbers of rows that get clusters of eight, four and two CTAs, and single CTAs.
class CudaSamplingOfRows : public NeedsGpu, public testing::WithParamInterface<size_t> {};

TEST_P(CudaSamplingOfRows, SamplesTheTokensOfTheCpuFromASmallVocabulary) {
  expect_tokens_of_the_cpu(GetParam(), 1001);
}
INSTANTIATE_TEST_SUITE_P(Each, CudaSamplingOfRows, testing::Values(6, 20, 40, 70));

// A cluster of eight CTAs, most of which have no part of the row.
TEST_F(CudaSampling, SamplesTheTokenOfTheCpuFromATinyVocabulary) {
  const Tensor logits = normal_logits(1, 37, 2.5f);
  const SamplingRule rule{.top_k = 20, .top_p = 0.9f};
  std::vector<int32_t> expected(1);
  Stream host;
  kernels::sample(logits, {&rule, 1}, expected, host);
  EXPECT_EQ(sampled(logits, {&rule, 1}), expected);
}

// One CTA per row, with all logits near the largest.
TEST_F(CudaSampling, SplitsABinThatExceedsSharedMemory) {
  constexpr size_t kRows = 67;
  const Tensor logits = normal_logits(kRows, 26000, 0.02f);
  std::vector<SamplingRule> rules(kRows, {.temperature = 0.0f});
  rules[3] = {.top_k = 300};
  rules[66] = {.top_p = 0.5f};
  std::vector<int32_t> expected(kRows);
  Stream host;
  kernels::sample(logits, rules, expected, host);
  EXPECT_EQ(sampled(logits, rules), expected);
}

// Most logits of a row in one histogram bin that exceeds shared memory; equal logits across a cut; a cut
// after the last logit.
TEST_F(CudaSampling, CutsLikeTheCpuForAnySpreadOfLogits) {
  constexpr int64_t kVocabSize = 128256;
  const float infinity = std::numeric_limits<float>::infinity();
  const auto narrow = [](float x, int64_t) { return 0.01f * x; };
  const auto rounded = [](float x, int64_t) { return 0.25f * std::round(4.0f * x); };
  const auto equal = [](float, int64_t) { return 3.0f; };
  const auto mostly_masked = [&](float x, int64_t i) { return i % 1000 == 7 ? x : -infinity; };
  const auto with_nan = [](float x, int64_t i) {
    return i % 3 == 0 ? std::numeric_limits<float>::quiet_NaN() : x;
  };
  const std::function<float(float, int64_t)> spreads[] = {narrow, rounded, equal, mostly_masked, with_nan};
  const SamplingRule kinds[] = {{.top_k = 1},
                                {.top_k = 300},
                                {.top_k = 100000},
                                {.top_p = 0.5f},
                                {.top_p = 0.999f},
                                {.temperature = 0.01f, .top_p = 0.9f},
                                {.temperature = 50.0f, .top_k = 5000, .top_p = 0.3f}};
  const auto num_rows = static_cast<int64_t>(std::size(spreads) * std::size(kinds));
  const Tensor logits = normal_logits(num_rows, kVocabSize, 2.5f);
  std::vector<SamplingRule> rules;
  for (const auto& spread : spreads)
    for (const SamplingRule& kind : kinds) {
      const std::span<float> row = logits.view()[std::ssize(rules)].span<float>();
      for (int64_t i = 0; i < kVocabSize; ++i)
        row[static_cast<size_t>(i)] = spread(row[static_cast<size_t>(i)], i);
      rules.push_back(kind);
      rules.back().seed = rules.size();
    }
  std::vector<int32_t> expected(rules.size());
  Stream host;
  kernels::sample(logits, rules, expected, host);
  EXPECT_EQ(sampled(logits, rules), expected);
  // One CTA per row, and clusters of eight.
  std::vector<SamplingRule> many;
  Tensor many_logits = Tensor::empty({4 * num_rows, kVocabSize}, DType::kF32);
  std::vector<int32_t> many_expected;
  for (int copy = 0; copy < 4; ++copy) {
    std::ranges::copy(logits.span<float>(), many_logits.span<float>().begin() + copy * num_rows * kVocabSize);
    many.insert(many.end(), rules.begin(), rules.end());
    many_expected.insert(many_expected.end(), expected.begin(), expected.end());
  }
  EXPECT_EQ(sampled(many_logits, many), many_expected);
  for (int64_t row = 0; row < num_rows; ++row) {
    const Tensor one(logits.view().slice(0, row, row + 1), logits.storage());
    EXPECT_EQ(sampled(one, std::span(rules).subspan(static_cast<size_t>(row), 1)).front(),
              expected[static_cast<size_t>(row)])
        << "row " << row;
  }
}

// The number of rows determines how rows share the SMs.
TEST_F(CudaSampling, SampleDoesNotDependOnTheNumberOfRows) {
  constexpr int64_t kRows = 150;
  const Tensor logits = normal_logits(kRows, 40001, 2.0f);
  std::vector<SamplingRule> rules;
  for (int64_t row = 0; row < kRows; ++row)
    rules.push_back({.top_k = row % 3 == 0 ? 400 : 0, .top_p = row % 2 == 0 ? 0.8f : 1.0f, .seed = 7});
  const std::vector<int32_t> all = sampled(logits, rules);
  for (const size_t num_rows : {1, 20, 40, 100}) {
    const Tensor some(logits.view().slice(0, 0, static_cast<int64_t>(num_rows)), logits.storage());
    EXPECT_EQ(sampled(some, std::span(rules).first(num_rows)),
              std::vector<int32_t>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(num_rows)))
        << num_rows << " rows";
  }
}

// Also a case for racecheck, which is too slow for clusters of four and eight.
TEST_F(CudaSampling, SamplesTheSameTokensAHundredTimes) {
  for (const size_t num_rows : {6, 20}) {
    const Tensor logits = normal_logits(static_cast<int64_t>(num_rows), 40001, 2.0f);
    std::vector<SamplingRule> rules;
    for (size_t row = 0; row < num_rows; ++row)
      rules.push_back({.top_k = row % 3 == 0 ? 400 : 0, .top_p = row % 2 == 0 ? 0.8f : 1.0f, .seed = row});
    const std::vector<int32_t> first = sampled(logits, rules);
    for (int repeat = 0; repeat < 100; ++repeat)
      ASSERT_EQ(sampled(logits, rules), first) << num_rows << " rows, repeat " << repeat;
  }
}

TEST_F(CudaSampling, MarksARowThatIsAllNan) {
  const Tensor logits = normal_logits(3, 1000, 1.0f);
  for (float& logit : logits.view()[1].span<float>()) logit = std::numeric_limits<float>::quiet_NaN();
  const std::vector<SamplingRule> rules(3);
  const std::vector<int32_t> ids = sampled(logits, rules);
  EXPECT_GE(ids[0], 0);
  EXPECT_EQ(ids[1], kernels::kNoToken);
  EXPECT_GE(ids[2], 0);
}

}  // namespace
}  // namespace attend::testing_cuda
