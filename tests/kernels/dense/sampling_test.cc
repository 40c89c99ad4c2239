#include "attend/kernels/sampling/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "tests/kernels/dense/target.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing::HasSubstr;
using testing_support::error_message;
using testing_support::NeedsTarget;
using testing_support::Target;
using testing_support::targets;
using testing_support::TestTensor;

using Argmax = NeedsTarget;
using Probabilities = NeedsTarget;
using Sample = NeedsTarget;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TestTensor rows_of(const std::vector<std::vector<float>>& rows) {
  const auto vocab_size = static_cast<int64_t>(rows[0].size());
  TestTensor logits({static_cast<int64_t>(rows.size()), vocab_size}, DType::kF32);
  for (size_t row = 0; row < rows.size(); ++row)
    for (size_t i = 0; i < rows[row].size(); ++i)
      logits.set(static_cast<int64_t>(row) * vocab_size + static_cast<int64_t>(i), rows[row][i]);
  return logits;
}

std::vector<int32_t> argmax_row(const std::vector<std::vector<float>>& rows, const Target& target) {
  const TestTensor logits = rows_of(rows);
  std::vector<int32_t> ids(rows.size(), kNoToken - 1);
  target.argmax(logits, ids);
  return ids;
}

int32_t sample_row(const std::vector<float>& row, const SamplingRule& rule, const Target& target) {
  const TestTensor logits = rows_of({row});
  int32_t id = kNoToken - 1;
  target.sample(logits, {&rule, 1}, {&id, 1});
  return id;
}

std::vector<float> random_row(size_t vocab_size, uint64_t seed, float deviation) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> row(vocab_size);
  for (float& logit : row) logit = normal(generator);
  return row;
}

TEST_F(Argmax, FindsTheLargestAtAnyPosition) {
  for (const auto& target : targets())
    for (const size_t vocab_size : {1u, 2u, 3u, 15u, 16u, 17u, 33u, 511u, 512u, 513u, 1040u})
      for (size_t at = 0; at < vocab_size; at += 1 + vocab_size / 50) {
        std::vector<float> row = random_row(vocab_size, 1, 1.0f);
        row[at] = 100.0f;
        ASSERT_EQ(argmax_row({row}, *target)[0], static_cast<int32_t>(at)) << *target << " of " << vocab_size;
      }
}

TEST_F(Argmax, BreaksTiesByLowestIndex) {
  for (const auto& target : targets())
    for (const size_t second : {1u, 7u, 15u, 16u, 300u, 600u, 1299u}) {
      std::vector<float> row(1300, -2.0f);
      row[second] = row[1299] = row[second / 2 + 1] = -1.0f;
      EXPECT_EQ(argmax_row({row}, *target)[0], static_cast<int32_t>(std::min(second, second / 2 + 1)))
          << *target;
    }
}

TEST_F(Argmax, TreatsSignedZerosAsEqual) {
  for (const auto& target : targets()) {
    EXPECT_EQ(argmax_row({{-1.0f, -0.0f, 0.0f}}, *target)[0], 1);
    EXPECT_EQ(argmax_row({{-1.0f, 0.0f, -0.0f}}, *target)[0], 1);
  }
}

TEST_F(Argmax, NeverReturnsNan) {
  for (const auto& target : targets())
    for (size_t at = 0; at < 40; ++at) {
      std::vector<float> row(40, kNan);
      row[at] = -5.0f;
      EXPECT_EQ(argmax_row({row}, *target)[0], static_cast<int32_t>(at)) << *target;
      row[at] = -kInfinity;
      EXPECT_EQ(argmax_row({row}, *target)[0], static_cast<int32_t>(at)) << *target;
    }
}

TEST_F(Argmax, ReturnsNoTokenForAnAllNanRowOnly) {
  const std::vector<float> good(50, 1.0f), bad(50, kNan);
  for (const auto& target : targets())
    EXPECT_EQ(argmax_row({good, bad, good}, *target), (std::vector<int32_t>{0, kNoToken, 0})) << *target;
}

TEST_F(Argmax, RowsAreIndependentAcrossThreads) {
  const TestTensor logits = TestTensor::random({30, 5000}, DType::kF32, 3);
  std::vector<int32_t> ids(30);
  targets().back()->argmax(logits, ids);
  for (int64_t row = 0; row < 30; ++row) {
    const float* const begin = logits.view().as<float>() + row * 5000;
    EXPECT_EQ(ids[static_cast<size_t>(row)], std::max_element(begin, begin + 5000) - begin) << row;
  }
}

// Specification of the filters: sorted float64 probabilities.
std::vector<double> filtered_probabilities(const std::vector<float>& row, const SamplingRule& rule) {
  const float max = *std::max_element(row.begin(), row.end());
  std::vector<double> weights;
  for (const float logit : row)
    weights.push_back(std::exp((static_cast<double>(logit) - max) / rule.temperature));
  std::vector<size_t> order(row.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return row[a] > row[b]; });

  if (rule.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(rule.top_k)));
  double kept = 0;
  for (const size_t i : order) kept += weights[i];
  double reached = 0;
  size_t count = 0;
  while (count < order.size() && (count == 0 || reached < rule.top_p * kept))
    reached += weights[order[count++]];
  order.resize(count);
  while (weights[order.back()] < rule.min_p) order.pop_back();

  std::vector<double> probabilities(row.size(), 0.0);
  double total = 0;
  for (const size_t i : order) total += weights[i];
  for (const size_t i : order) probabilities[i] = weights[i] / total;
  return probabilities;
}

// Checks that `id` is the first id at which the cumulative probability exceeds u, up to rounding.
void expect_inverts_cumulative_sum(const std::vector<double>& probabilities, double u, int32_t id) {
  constexpr double kRounding = 2e-6;
  double before = 0;
  for (int32_t i = 0; i < id; ++i) before += probabilities[static_cast<size_t>(i)];
  const double mine = probabilities[static_cast<size_t>(id)];
  ASSERT_GT(mine, 0.0) << "token " << id << " was filtered out";
  ASSERT_GE(u, before - kRounding) << "token " << id;
  ASSERT_LT(u, before + mine + kRounding) << "token " << id;
}

const std::vector<SamplingRule> kRules = {
    {},
    {.temperature = 0.3f},
    {.temperature = 4.0f},
    {.top_k = 1},
    {.top_k = 7},
    {.top_k = 1000000},
    {.top_p = 0.9f},
    {.top_p = 0.3f},
    {.top_p = 1e-6f},
    {.min_p = 0.05f},
    {.min_p = 1.0f},
    {.temperature = 0.7f, .top_k = 20, .top_p = 0.8f},
    {.temperature = 1.5f, .top_k = 40, .top_p = 0.95f, .min_p = 0.02f},
    {.top_p = 0.999f, .min_p = 0.3f},
};

TEST_F(Sample, InvertsTheCumulativeSumOfFilteredProbabilities) {
  for (const auto& target : targets())
    for (const size_t vocab_size : {1u, 2u, 17u, 100u, 512u, 513u, 3000u})
      for (SamplingRule rule : kRules)
        for (uint64_t step = 0; step < 8; ++step) {
          rule.step = step;
          rule.seed = vocab_size;
          const std::vector<float> row = random_row(vocab_size, step, 3.0f);
          SCOPED_TRACE(testing::Message() << *target << " of " << vocab_size << " temperature "
                                          << rule.temperature << " top_k " << rule.top_k << " top_p "
                                          << rule.top_p << " min_p " << rule.min_p << " step " << step);
          expect_inverts_cumulative_sum(filtered_probabilities(row, rule), uniform_draw(rule.seed, rule.step),
                                        sample_row(row, rule, *target));
        }
}

TEST_F(Probabilities, MatchTheFilteredProbabilities) {
  for (const auto& target : targets())
    for (const size_t vocab_size : {1u, 2u, 17u, 512u, 3000u}) {
      std::vector<std::vector<float>> rows;
      for (size_t i = 0; i < kRules.size(); ++i) rows.push_back(random_row(vocab_size, i, 3.0f));
      const TestTensor logits = rows_of(rows);
      TestTensor out({std::ssize(rows), static_cast<int64_t>(vocab_size)}, DType::kF32);
      out.fill(7.0f);
      target->probabilities(logits, kRules, out);
      for (size_t row = 0; row < rows.size(); ++row) {
        const std::vector<double> wanted = filtered_probabilities(rows[row], kRules[row]);
        for (size_t i = 0; i < vocab_size; ++i)
          ASSERT_NEAR(out.at(static_cast<int64_t>(row * vocab_size + i)), wanted[i], 2e-6)
              << *target << " of " << vocab_size << " row " << row << " token " << i;
      }
    }
}

TEST_F(Probabilities, GreedyRowIsOneHot) {
  const std::vector<SamplingRule> rules = {{.temperature = 0.0f}, {}, {}, {.temperature = 0.0f}};
  const std::vector<std::vector<float>> rows = {{1.0f, 3.0f, kNan, 3.0f},
                                                {kInfinity, 0.0f, kInfinity, kNan},
                                                {kNan, kNan, kNan, kNan},
                                                {kNan, kNan, kNan, kNan}};
  for (const auto& target : targets()) {
    const TestTensor logits = rows_of(rows);
    TestTensor out({4, 4}, DType::kF32);
    out.fill(7.0f);
    target->probabilities(logits, rules, out);
    EXPECT_EQ(out.values(), (std::vector<double>{0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})) << *target;
  }
}

TEST_F(Sample, KeepsTheLowestIdsOfEqualLogitsAtTheCut) {
  // Four distinct values, so that every filter cuts within equal logits.
  std::vector<float> row(60);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(i * 7 % 4);
  for (const auto& target : targets())
    for (SamplingRule rule :
         {SamplingRule{.top_k = 5}, SamplingRule{.top_k = 20}, SamplingRule{.top_p = 0.2f},
          SamplingRule{.top_p = 0.8f}, SamplingRule{.top_k = 20, .top_p = 0.85f}})
      for (uint64_t step = 0; step < 50; ++step) {
        rule.step = step;
        SCOPED_TRACE(testing::Message() << *target << " top_k " << rule.top_k << " top_p " << rule.top_p);
        expect_inverts_cumulative_sum(filtered_probabilities(row, rule), uniform_draw(0, step),
                                      sample_row(row, rule, *target));
      }
}

TEST_F(Sample, AppliesTopPAfterTopK) {
  // The first token has probability 0.4, so top_p 0.5 needs two tokens. Among the two largest it has 0.57 and
  // suffices.
  const std::vector<float> row = {std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
  for (const auto& target : targets())
    for (uint64_t step = 0; step < 100; ++step)
      EXPECT_EQ(sample_row(row, {.top_k = 2, .top_p = 0.5f, .step = step}, *target), 0);
}

// Chi-square statistic of the counts for these probabilities, in standard deviations from its mean.
double chi_square_excess(const std::vector<int64_t>& counts, const std::vector<double>& probabilities) {
  const auto num_draws = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  double statistic = 0, rest_expected = 0, rest_count = 0;
  int num_cells = 0;
  const auto add_cell = [&](double count, double expected) {
    statistic += (count - expected) * (count - expected) / expected;
    ++num_cells;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * num_draws;
    // Cells with few counts are merged, as the statistic requires.
    if (expected >= 10) {
      add_cell(static_cast<double>(counts[i]), expected);
    } else {
      rest_expected += expected;
      rest_count += static_cast<double>(counts[i]);
    }
  }
  if (rest_expected >= 10) add_cell(rest_count, rest_expected);
  const double freedom = std::max(num_cells - 1, 1);
  return (statistic - freedom) / std::sqrt(2 * freedom);
}

TEST_F(Sample, SamplesTokensWithTheirProbability) {
  constexpr size_t kBatch = 1000, kBatches = 20;
  const std::vector<float> row = random_row(200, 5, 2.0f);
  const std::vector<SamplingRule> rules = {
      {.temperature = 1.0f}, {.temperature = 0.5f},
      {.top_k = 10},         {.top_p = 0.7f},
      {.min_p = 0.1f},       {.temperature = 1.2f, .top_k = 50, .top_p = 0.9f, .min_p = 0.01f}};
  const TestTensor logits = rows_of({row});
  // The same row for every draw of a batch.
  TensorView batch = logits;
  batch.shape[0] = kBatch;
  batch.strides[0] = 0;
  const Target& target = *targets().back();
  for (const bool over_seeds : {false, true})
    for (SamplingRule rule : rules) {
      std::vector<int64_t> counts(row.size(), 0);
      std::vector<SamplingRule> draws;
      std::vector<int32_t> ids(kBatch);
      for (size_t i = 0; i < kBatches; ++i) {
        draws.clear();
        for (size_t draw = i * kBatch; draw < (i + 1) * kBatch; ++draw) {
          (over_seeds ? rule.seed : rule.step) = draw;
          draws.push_back(rule);
        }
        target.sample(batch, draws, ids);
        for (const int32_t id : ids) ++counts[static_cast<size_t>(id)];
      }
      const std::vector<double> probabilities = filtered_probabilities(row, rule);
      for (size_t i = 0; i < counts.size(); ++i)
        ASSERT_TRUE(counts[i] == 0 || probabilities[i] > 0.0) << "token " << i << " was filtered out";
      EXPECT_LT(chi_square_excess(counts, probabilities), 4.0)
          << "temperature " << rule.temperature << " top_k " << rule.top_k << " top_p " << rule.top_p;
    }
}

TEST_F(Sample, AtTemperatureZeroIsArgmax) {
  for (const auto& target : targets())
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const std::vector<float> row = random_row(300, seed, 1.0f);
      const SamplingRule rule = {.temperature = 0.0f, .top_k = 5, .top_p = 0.5f, .min_p = 0.1f, .seed = seed};
      EXPECT_EQ(sample_row(row, rule, *target), argmax_row({row}, *target)[0]) << *target;
    }
}

TEST_F(Sample, AtAVanishingTemperatureIsArgmax) {
  const std::vector<float> row = random_row(300, 1, 1.0f);
  for (const auto& target : targets())
    for (const float temperature : {1e-6f, 1e-30f, 1e-40f, std::numeric_limits<float>::denorm_min()})
      EXPECT_EQ(sample_row(row, {.temperature = temperature, .seed = 3}, *target),
                argmax_row({row}, *target)[0])
          << *target << " " << temperature;
}

TEST_F(Sample, NeverSamplesNanOrZeroProbability) {
  std::vector<float> row(100, kNan);
  for (size_t i = 0; i < 40; ++i) row[i] = -kInfinity;
  row[33] = row[70] = 1.5f;
  for (const auto& target : targets())
    for (SamplingRule rule : kRules)
      for (uint64_t step = 0; step < 10; ++step) {
        rule.step = step;
        const int32_t id = sample_row(row, rule, *target);
        EXPECT_TRUE(id == 33 || id == 70) << *target << " took " << id;
      }
}

TEST_F(Sample, ReturnsTheTokenWithAnInfiniteLogit) {
  std::vector<float> row = random_row(100, 1, 1.0f);
  row[60] = row[80] = kInfinity;
  const std::vector<float> impossible(20, -kInfinity);
  for (const auto& target : targets())
    for (uint64_t step = 0; step < 10; ++step) {
      EXPECT_EQ(sample_row(row, {.step = step}, *target), 60) << *target;
      EXPECT_EQ(sample_row(impossible, {.step = step}, *target), 0) << *target;
    }
}

TEST_F(Sample, ReturnsNoTokenForAnAllNanRow) {
  const std::vector<float> bad(9, kNan);
  for (const auto& target : targets())
    for (const float temperature : {0.0f, 1.0f})
      EXPECT_EQ(sample_row(bad, {.temperature = temperature}, *target), kNoToken) << *target;
}

TEST_F(Sample, DoesNotDependOnTheBatch) {
  constexpr int64_t kRows = 24, kVocab = 4000;
  const TestTensor logits = TestTensor::random({kRows, kVocab}, DType::kF32, 9, 2.0f);
  std::vector<SamplingRule> rules;
  for (size_t row = 0; row < kRows; ++row) {
    rules.push_back(kRules[row % kRules.size()]);
    rules.back().seed = row;
    rules.back().step = 100 - row;
  }
  for (const auto& target : targets()) {
    std::vector<int32_t> together(kRows);
    target->sample(logits, rules, together);
    for (int64_t row = 0; row < kRows; ++row) {
      const auto i = static_cast<size_t>(row);
      int32_t alone = -1;
      target->sample(logits.view().slice(0, row, row + 1), {&rules[i], 1}, {&alone, 1});
      EXPECT_EQ(alone, together[i]) << *target << " row " << row;
    }
  }
}

TEST_F(Sample, ChangesWithTheSeedAndWithTheStep) {
  const std::vector<float> row(1000, 0.0f);
  const Target& target = *targets().back();
  std::vector<int32_t> by_seed, by_step;
  for (uint64_t i = 0; i < 20; ++i) {
    by_seed.push_back(sample_row(row, {.seed = i}, target));
    by_step.push_back(sample_row(row, {.step = i}, target));
  }
  EXPECT_NE(by_seed, by_step);
  for (std::vector<int32_t>* ids : {&by_seed, &by_step}) {
    std::sort(ids->begin(), ids->end());
    EXPECT_GE(std::unique(ids->begin(), ids->end()) - ids->begin(), 18);
  }
}

TEST(UniformDraw, MatchesSplitMix64OfTheScrambledSeed) {
  // scramble(0) is 0; the outputs of SplitMix64 from 0 are published with the generator.
  EXPECT_EQ(uniform_draw(0, 0), static_cast<double>(0xe220a8397b1dcdafu >> 11) * 0x1p-53);
  EXPECT_EQ(uniform_draw(0, 1), static_cast<double>(0x6e789e6aa1b965f4u >> 11) * 0x1p-53);
  EXPECT_EQ(uniform_draw(0, 2), static_cast<double>(0x06c45d188009454fu >> 11) * 0x1p-53);
}

TEST(UniformDraw, IsUniformOverNeighboringSeedsAndSteps) {
  constexpr size_t kCells = 16;
  const std::vector<double> even(kCells * kCells, 1.0 / (kCells * kCells));
  const auto cell = [](double a, double b) {
    return static_cast<size_t>(a * kCells) * kCells + static_cast<size_t>(b * kCells);
  };
  std::vector<int64_t> steps(kCells * kCells, 0), seeds(kCells * kCells, 0);
  for (uint64_t i = 0; i < 20000; ++i) {
    const double draw = uniform_draw(7, i);
    ASSERT_GE(draw, 0.0);
    ASSERT_LT(draw, 1.0);
    ++steps[cell(draw, uniform_draw(7, i + 1))];
    ++seeds[cell(uniform_draw(i, 7), uniform_draw(i + 1, 7))];
  }
  EXPECT_LT(chi_square_excess(steps, even), 4.0);
  EXPECT_LT(chi_square_excess(seeds, even), 4.0);
}

TEST(SamplingRule, NamesTheFieldThatIsOutOfRange) {
  const auto error_text = [](const SamplingRule& rule) {
    return error_message(ErrorCode::kInvalidArgument, [&] { check(rule); });
  };
  EXPECT_EQ(error_text({.temperature = -0.5f}), "temperature -0.5: expected at least 0 (0: greedy)");
  EXPECT_THAT(error_text({.temperature = kNan}), HasSubstr("temperature nan"));
  EXPECT_THAT(error_text({.temperature = kInfinity}), HasSubstr("temperature inf"));
  EXPECT_EQ(error_text({.top_k = -1}), "top_k -1: expected at least 1, or 0 for all");
  EXPECT_EQ(error_text({.top_p = 0.0f}), "top_p 0: expected above 0 and at most 1");
  EXPECT_THAT(error_text({.top_p = 1.5f}), HasSubstr("top_p 1.5"));
  EXPECT_THAT(error_text({.top_p = kNan}), HasSubstr("top_p nan"));
  EXPECT_EQ(error_text({.min_p = -0.1f}), "min_p -0.1: expected from 0 to 1");
  EXPECT_THAT(error_text({.min_p = 1.1f}), HasSubstr("min_p 1.1"));
  for (const SamplingRule& rule : kRules) EXPECT_NO_THROW(check(rule));
}

// Rejected before any launch, so no GPU is needed.
TEST(SampleOnAGpu, RejectsAVocabularyTooLargeForItsHistogram) {
  constexpr int64_t kVocabSize = 1 << 20;
  Stream stream{.device = {DeviceType::kCuda, 0}};
  float never_read = 0.0f;
  const TensorView logits = TensorView::contiguous(&never_read, DType::kF32, {1, kVocabSize}, stream.device);
  const SamplingRule rule{.temperature = 1.0f, .top_k = 5};
  int32_t id = 0;
  EXPECT_THAT(error_message(ErrorCode::kUnsupported,
                            [&] {
                              sample(logits, {&rule, 1}, {&id, 1}, stream);
                            }),
              HasSubstr("a vocabulary of 1048576 on cuda:0: expected at most 1048575"));
}

TEST_F(Sample, RejectsMismatchedArgumentsAndReportsWhy) {
  const TestTensor logits({2, 9}, DType::kF32), half({2, 9}, DType::kF16);
  std::vector<SamplingRule> rules(2), one(1);
  std::vector<int32_t> ids(2), three(3);
  Stream stream;
  const auto error_text = [](auto&& fn) { return error_message(ErrorCode::kInvalidArgument, fn); };
  EXPECT_EQ(error_text([&] { sample(logits, one, ids, stream); }), "rules: 1 for 2 rows of logits");
  EXPECT_EQ(error_text([&] { argmax(logits, three, stream); }), "ids: 3 for 2 rows of logits");
  EXPECT_EQ(error_text([&] { argmax(half, ids, stream); }), "logits float16[2, 9] on cpu: expected float32");
  rules[1].top_p = 2.0f;
  EXPECT_THAT(error_text([&] { sample(logits, rules, ids, stream); }), HasSubstr("top_p 2"));
}

}  // namespace
}  // namespace attend::kernels
