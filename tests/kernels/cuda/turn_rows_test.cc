// Rows turned and scaled on the GPU are those of the CPU.
#include "attend/kernels/norm_rope/turn_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/kernels/cuda/device_copy.h"
#include "tests/kernels/cuda/needs_gpu.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::testing_cuda {
namespace {

using testing_support::TestTensor;

constexpr int64_t kTokens = 9, kHeads = 6, kPositions = 50;
constexpr int32_t kReqs = 3;

struct Turn {
  DType from, to, angles;
  int64_t head_dim, pairs;  // 0 pairs: not turned
  bool interleaved = false, at_first = false, scaled = false, in_place = false;
};

std::ostream& operator<<(std::ostream& out, const Turn& turn) {
  return out << turn.from << " to " << turn.to << ", " << turn.pairs << " pairs of " << turn.head_dim
             << (turn.interleaved ? ", interleaved" : "") << (turn.at_first ? ", at the first position" : "")
             << (turn.scaled ? ", scaled" : "") << (turn.in_place ? ", in place" : "");
}

class CudaTurnRows : public NeedsGpu, public testing::WithParamInterface<Turn> {
 protected:
  // Ragged requests, the second without a token, and a token of padding.
  const std::vector<int32_t> cu_seqlens_{0, 5, 5, 8}, first_position_{0, 7, 45};
  const std::vector<float> by_request_and_pair_{0.5f, 2.0f, 3.0f, 5.0f, 7.0f, 0.25f},
      by_head_{1, 2, 3, 4, 5, 6};
};

// The largest head on a GPU; a rest of a warp's lanes; heads turned in part, and not at all.
INSTANTIATE_TEST_SUITE_P(
    Each, CudaTurnRows,
    testing::Values(
        Turn{DType::kBF16, DType::kBF16, DType::kF32, 128, 64},
        Turn{DType::kF16, DType::kF32, DType::kF16, 256, 128, /*interleaved=*/true},
        Turn{DType::kF32, DType::kBF16, DType::kBF16, 72, 20, /*interleaved=*/true, /*at_first=*/true},
        Turn{DType::kF32, DType::kF32, DType::kF32, 40, 16, false, false, /*scaled=*/true},
        Turn{DType::kBF16, DType::kBF16, DType::kF32, 96, 48, true, false, true, /*in_place=*/true},
        Turn{DType::kF16, DType::kF16, DType::kF32, 64, 0, false, false, true, true}));

TEST_P(CudaTurnRows, AreThoseOfTheHost) {
  const Turn& turn = GetParam();
  const TestTensor from = TestTensor::random({kTokens, kHeads, turn.head_dim}, turn.from, 1);
  const TestTensor cos = TestTensor::random({kPositions, turn.pairs}, turn.angles, 2);
  const TestTensor sin = TestTensor::random({kPositions, turn.pairs}, turn.angles, 3);
  TestTensor got({kTokens, kHeads, turn.head_dim}, turn.to), want({kTokens, kHeads, turn.head_dim}, turn.to);
  got.fill(NAN);
  const auto args_of = [&](const auto& tensor, const auto& array, const TestTensor& to) {
    kernels::TurnRowsArgs args{
        .from = tensor(from), .to = tensor(to), .num_reqs = kReqs, .seqlens = {.cu = array(cu_seqlens_)}};
    if (turn.in_place) args.from = args.to;
    if (turn.pairs > 0)
      args.angles = {.cos = tensor(cos),
                     .sin = tensor(sin),
                     .interleaved = turn.interleaved,
                     .first_position = {.each = array(first_position_)},
                     .at_first = turn.at_first};
    if (turn.scaled)
      args.scales = {
          {.data = array(by_request_and_pair_), .request_stride = 2, .head_stride = 1, .heads_each = 3},
          {.data = array(by_head_), .head_stride = 1}};
    return args;
  };
  if (turn.in_place)
    for (TestTensor* to : {&got, &want})
      for (int64_t i = 0; i < from.size(); ++i) to->set(i, static_cast<float>(from.at(i)));
  Stream host;
  kernels::turn_rows(args_of([](const TestTensor& tensor) { return tensor.view(); },
                             [](const auto& array) { return array.data(); }, want),
                     host);

  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  DeviceArrays arrays(stream);
  const DeviceCopy to(got, stream);
  const DeviceCopy copies[] = {{from, stream}, {cos, stream}, {sin, stream}};
  const auto on_device = [&](const TestTensor& tensor) {
    return &tensor == &got ? to.view() : copies[&tensor == &from ? 0 : &tensor == &cos ? 1 : 2].view();
  };
  const auto upload = [&]<class T>(const std::vector<T>& array) {
    return arrays.upload(std::span<const T>(array));
  };
  kernels::turn_rows(args_of(on_device, upload, got), stream);
  to.download(stream);
  cuda::synchronize(stream);
  // Products of up to the largest size are added with or without a rounding between, and then rounded once.
  double largest = 0.0;
  for (int64_t i = 0; i < want.size(); ++i) largest = std::max(largest, std::abs(want.at(i)));
  const double rounding = turn.to == DType::kF32 ? 0.0 : turn.to == DType::kF16 ? 0x1p-10 : 0x1p-7;
  for (int64_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got.at(i), want.at(i), rounding * std::abs(want.at(i)) + 0x1p-22 * largest)
        << "element " << i;
}

}  // namespace
}  // namespace attend::testing_cuda
