// Penalties, biases, masks and log probabilities, on the CPU and on the GPU.
#include "attend/kernels/sampling/edit_logits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "attend/kernels/sampling/logprobs.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels {
namespace {

using testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class EditLogits : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    device_ = {GetParam(), 0};
    if (device_.type == DeviceType::kCpu) return;
    if (cuda::device_count() == 0) GTEST_SKIP() << "this machine has no GPU that this build can use";
    gpu_stream_.emplace(device_);
    stream_ = gpu_stream_->get();
  }

  // Memory that both the host and the device access.
  template <class T>
  View<T> shared(const std::vector<T>& values) {
    const auto num_bytes = static_cast<int64_t>(values.size() * sizeof(T));
    Tensor memory = device_.type == DeviceType::kCpu ? Tensor::empty({num_bytes}, DType::kU8)
                                                     : cuda::empty_pinned({num_bytes}, DType::kU8, device_);
    memory_.push_back(memory);
    const View<T> view(static_cast<T*>(memory.view().data), values.size());
    std::copy(values.begin(), values.end(), view.begin());
    return view;
  }

  void set_logits(const std::vector<std::vector<float>>& rows) {
    const auto num_rows = static_cast<int64_t>(rows.size()), size = static_cast<int64_t>(rows[0].size());
    host_logits_ = Tensor::empty({num_rows, size}, DType::kF32);
    for (size_t row = 0; row < rows.size(); ++row)
      std::copy(rows[row].begin(), rows[row].end(), host_logits_.as<float>() + row * rows[row].size());
    logits_ = Tensor::empty({num_rows, size}, DType::kF32, device_);
    cuda_copy(host_logits_, logits_);
  }
  std::vector<float> row(int64_t i) {
    cuda_copy(logits_, host_logits_);
    const float* const begin = host_logits_.as<float>() + i * host_logits_.shape(1);
    return {begin, begin + host_logits_.shape(1)};
  }
  void cuda_copy(const TensorView& from, const TensorView& to) {
    if (device_.type == DeviceType::kCpu) {
      std::copy_n(from.as<const float>(), from.shape[0] * from.shape[1], to.as<float>());
    } else {
      cuda::copy(from, to, stream_);
      cuda::synchronize(stream_);
    }
  }
  void wait() {
    if (gpu_stream_) cuda::synchronize(stream_);
  }

  struct Scores {
    View<float> log_sums;
    View<TokenLogprob> top;
    std::vector<TokenLogprob> of(size_t row, size_t num_top) const {
      const auto mine = top.subspan(row * kMaxTopLogprobs, num_top);
      return {mine.begin(), mine.end()};
    }
  };
  Scores score(const std::vector<int32_t>& num_top) {
    const Scores scores{shared(std::vector<float>(num_top.size(), kNan)),
                        shared(std::vector<TokenLogprob>(num_top.size() * kMaxTopLogprobs, {-7, 0.0f}))};
    top_logprobs(logits_, shared(num_top), scores.log_sums, scores.top, stream_);
    wait();
    return scores;
  }

  Device device_;
  std::optional<cuda::OwnedStream> gpu_stream_;
  Stream stream_;
  std::vector<Tensor> memory_;
  Tensor host_logits_, logits_;
};

// x / 1.5 or x * 1.5, then the offsets, computed by hand.
TEST_P(EditLogits, AppliesRepetitionThenOffsets) {
  set_logits({{3.0f, -2.0f, 0.5f, 1.0f}, {3.0f, -2.0f, 0.5f, 1.0f}});
  const LogitEdits edits{.cu_edits = shared<int32_t>({0, 3, 4}),
                         .edits = shared<LogitEdit>(
                             {{0, 1.5f, 0.0f}, {1, 1.5f, -0.25f}, {3, 1.0f, -kInfinity}, {2, 2.0f, 1.0f}}),
                         .before = shared(std::vector<float>(4)),
                         .mask_row_idx = {},
                         .masks = {}};
  edit_logits(logits_, edits, stream_);
  wait();
  EXPECT_THAT(row(0), ElementsAre(2.0f, -3.25f, 0.5f, -kInfinity));
  EXPECT_THAT(row(1), ElementsAre(3.0f, -2.0f, 1.25f, 1.0f));
}

TEST_P(EditLogits, MasksTokensOfRowsWithAMask) {
  constexpr int64_t kVocab = 1300;
  set_logits(std::vector<std::vector<float>>(3, std::vector<float>(kVocab, 1.0f)));
  std::vector<uint32_t> masks(2 * mask_words(kVocab), 0);
  const auto allow = [&](int64_t mask, int64_t token) {
    masks[static_cast<size_t>(mask * mask_words(kVocab) + token / 32)] |= 1u << (token % 32);
  };
  for (const int64_t token : {0, 31, 32, 1299}) allow(0, token);
  for (int64_t token = 0; token < kVocab; ++token)
    if (token != 700) allow(1, token);
  const LogitEdits edits{.cu_edits = shared<int32_t>({0, 0, 0, 1}),
                         .edits = shared<LogitEdit>({{700, 1.0f, 5.0f}}),
                         .before = shared(std::vector<float>(1)),
                         .mask_row_idx = shared<int32_t>({0, -1, 1}),
                         .masks = shared(masks)};
  edit_logits(logits_, edits, stream_);
  wait();
  for (int64_t token = 0; token < kVocab; ++token) {
    const auto i = static_cast<size_t>(token);
    EXPECT_EQ(row(0)[i], token == 0 || token == 31 || token == 32 || token == 1299 ? 1.0f : -kInfinity) << i;
    if (token % 100 != 0) continue;
    EXPECT_EQ(row(1)[i], 1.0f);
    EXPECT_EQ(row(2)[i], token == 700 ? -kInfinity : 1.0f);
  }
}

TEST_P(EditLogits, ReturnsTopTokensWithTiesByLowestId) {
  // Probabilities 1/8, 1/2, 1/8, 1/4.
  const float eighth = std::log(1.0f / 8);
  set_logits({{eighth + 3, eighth + 3 + std::log(4.0f), eighth + 3, eighth + 3 + std::log(2.0f)},
              {kNan, 1.0f, -kInfinity, kNan},
              {0.0f, 0.0f, 0.0f, 0.0f}});
  const Scores scores = score({4, 3, -1});
  const auto top = scores.of(0, 4);
  EXPECT_NEAR(scores.log_sums[0], 3.0f, 1e-6f);
  const int32_t ids[] = {1, 3, 0, 2};
  const float logprobs[] = {std::log(0.5f), std::log(0.25f), eighth, eighth};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(top[i].token_id, ids[i]);
    EXPECT_NEAR(top[i].logprob, logprobs[i], 1e-6f);
  }
  EXPECT_THAT(scores.of(1, 3),
              ElementsAre(TokenLogprob{1, 0.0f}, TokenLogprob{2, -kInfinity}, TokenLogprob{-1, -kInfinity}));
  EXPECT_EQ(scores.of(2, 1)[0].token_id, -7) << "a row that asks for nothing was written";
}

TEST_P(EditLogits, MatchesASortAndASumInDouble) {
  for (const size_t vocab : {1u, 7u, 1024u, 1025u, 2112u, 40000u, 128256u}) {
    std::mt19937 random(static_cast<unsigned>(vocab));
    std::normal_distribution<float> normal(0.0f, 3.0f);
    std::vector<std::vector<float>> rows(3, std::vector<float>(vocab));
    for (auto& logits : rows)
      for (float& logit : logits) logit = normal(random);
    // Many equal logits, in the same column of every 1024.
    for (float& logit : rows[1]) logit = std::round(logit);
    std::fill(rows[2].begin(), rows[2].end(), -1.0f);
    set_logits(rows);
    const int32_t num_top = kMaxTopLogprobs;
    const Scores scores = score({num_top, num_top, num_top});
    for (size_t r = 0; r < rows.size(); ++r) {
      std::vector<int32_t> order(vocab);
      for (size_t i = 0; i < vocab; ++i) order[i] = static_cast<int32_t>(i);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return rows[r][static_cast<size_t>(a)] > rows[r][static_cast<size_t>(b)];
      });
      double sum = 0.0;
      for (const float logit : rows[r]) sum += std::exp(static_cast<double>(logit));
      EXPECT_NEAR(scores.log_sums[r], std::log(sum), 4e-6 * std::max(1.0, std::abs(std::log(sum))));
      const auto top = scores.of(r, num_top);
      for (size_t i = 0; i < top.size(); ++i) {
        ASSERT_EQ(top[i].token_id, i < vocab ? order[i] : -1) << vocab << " row " << r << " place " << i;
        if (i >= vocab) continue;
        ASSERT_EQ(top[i].logprob, rows[r][static_cast<size_t>(order[i])] - scores.log_sums[r]);
      }
    }
  }
}

TEST_P(EditLogits, ScoresTokensByTheLogitsBeforeTheEdits) {
  set_logits({{1.0f, 2.0f, 3.0f}, {1.0f, 2.0f, 3.0f}, {1.0f, 2.0f, 3.0f}});
  const Scores scores = score({0, 0, 0});
  const LogitEdits edits{.cu_edits = shared<int32_t>({0, 2, 2, 2}),
                         .edits = shared<LogitEdit>({{1, 1.0f, 9.0f}, {0, 1.0f, -9.0f}}),
                         .before = shared(std::vector<float>(2)),
                         .mask_row_idx = {},
                         .masks = {}};
  edit_logits(logits_, edits, stream_);
  const View<float> logprobs = shared(std::vector<float>(3, 7.0f));
  token_logprobs(logits_, edits, shared<int32_t>({1, 2, -1}), scores.log_sums, logprobs, stream_);
  wait();
  const float log_sum = std::log(std::exp(1.0f) + std::exp(2.0f) + std::exp(3.0f));
  EXPECT_NEAR(logprobs[0], 2.0f - log_sum, 1e-6f);
  EXPECT_NEAR(logprobs[1], 3.0f - log_sum, 1e-6f);
  EXPECT_EQ(logprobs[2], 7.0f);
  EXPECT_EQ(row(0)[1], 11.0f);
}

INSTANTIATE_TEST_SUITE_P(On, EditLogits, testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         [](const auto& device) { return device.param == DeviceType::kCpu ? "Cpu" : "Gpu"; });

}  // namespace
}  // namespace attend::kernels
