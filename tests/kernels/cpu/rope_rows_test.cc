
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attend/kernels/norm_rope/rope.h"
#include "tests/support/error_message.h"

namespace attend::kernels {
namespace {

using testing::HasSubstr;
using testing_support::error_message;

// Two requests of 3 and 1 tokens with 2 heads of 6 elements, of which 4 are rotated, and a padding token.
class RopeRows : public testing::Test {
 protected:
  static constexpr int64_t kTokens = 5, kHeads = 2, kDim = 6, kPairs = 2, kPositions = 9;

  RopeRows() : x_(kTokens * kHeads * kDim), cos_(kPositions * kPairs), sin_(kPositions * kPairs) {
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = std::sin(static_cast<float>(3 * i + 1));
    for (size_t i = 0; i < cos_.size(); ++i) {
      cos_[i] = std::cos(static_cast<float>(i));
      sin_[i] = std::sin(static_cast<float>(i));
    }
  }

  static TensorView rows(std::vector<float>& values) {
    return TensorView::contiguous(values.data(), DType::kF32, {kTokens, kHeads, kDim});
  }
  static TensorView angles(std::vector<float>& values) {
    return TensorView::contiguous(values.data(), DType::kF32, {kPositions, kPairs});
  }
  RopeRowsArgs args_to(std::vector<float>& to) {
    return {.from = rows(x_),
            .to = rows(to),
            .num_reqs = 2,
            .seqlens = {.cu = cu_seqlens_.data()},
            .angles = {.cos = angles(cos_),
                       .sin = angles(sin_),
                       .first_position = {.per_request = first_position_.data()}}};
  }

  std::vector<float> x_, cos_, sin_;
  std::vector<int32_t> cu_seqlens_ = {0, 3, 4}, first_position_ = {5, 2};
  Stream stream_;
};

TEST_F(RopeRows, RotatesHalvesLikeRopeAndKeepsPadding) {
  std::vector<float> rotated(x_.size()), want = x_;
  const std::vector<int32_t> positions = {5, 6, 7, 2};
  rope(rows(want).slice(0, 0, 4), positions, angles(cos_), angles(sin_), stream_);
  apply_rope_rows(args_to(rotated), stream_);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(rotated[i], want[i], 1e-6f) << i;
}

TEST_F(RopeRows, RotatesNeighborsIfPairsAreInterleaved) {
  std::vector<float> rotated(x_.size()), halves(x_.size());
  RopeRowsArgs interleaved = args_to(rotated);
  interleaved.angles.interleaved = true;
  apply_rope_rows(interleaved, stream_);
  // The same pairs in the layout of halves, reordered to be adjacent.
  const std::vector<float> x = x_;
  const size_t interleaved_order[kDim] = {0, 2, 1, 3, 4, 5};
  for (size_t i = 0; i < x.size(); ++i) x_[i / kDim * kDim + interleaved_order[i % kDim]] = x[i];
  apply_rope_rows(args_to(halves), stream_);
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(rotated[i], halves[i / kDim * kDim + interleaved_order[i % kDim]]) << i;
}

TEST_F(RopeRows, ScalesEachRequestAndHeadInPlace) {
  const std::vector<float> x = x_, by_request = {2.0f, 3.0f}, by_head = {5.0f, 7.0f};
  RopeRowsArgs args = args_to(x_);
  args.angles = {};
  args.scales = {{.data = by_request.data(), .request_stride = 1, .heads_per_scale = 2},
                 {.data = by_head.data(), .head_stride = 1}};
  apply_rope_rows(args, stream_);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t token = i / (kHeads * kDim), head = i / kDim % kHeads;
    const float scale = token == 4 ? 1.0f : by_request[token == 3 ? 1 : 0] * by_head[head];
    EXPECT_EQ(x_[i], x[i] * scale) << i;
  }
}

TEST_F(RopeRows, RejectsPositionsBeyondTheAngles) {
  std::vector<float> to(x_.size());
  first_position_[1] = 9;
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { apply_rope_rows(args_to(to), stream_); }),
              HasSubstr("request 1 has positions 9 to 9: cos and sin have 9"));
}

}  // namespace
}  // namespace attend::kernels
