// Rows rotated and scaled on the GPU equal the CPU's.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attend/kernels/norm_rope/rope.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/cuda/support/needs_gpu.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::testing_cuda {
namespace {

using testing_support::TestTensor;

constexpr int64_t kTokens = 9, kHeads = 6, kPositions = 50;
constexpr int32_t kReqs = 3;

struct Rotation {
  DType from, to, angles;
  int64_t head_dim, pairs;  // 0 pairs: no rotation
  bool interleaved = false, same_position = false, scaled = false, in_place = false;
};

std::ostream& operator<<(std::ostream& out, const Rotation& rotation) {
  return out << rotation.from << " to " << rotation.to << ", " << rotation.pairs << " pairs of "
             << rotation.head_dim << (rotation.interleaved ? ", interleaved" : "")
             << (rotation.same_position ? ", at the first position" : "")
             << (rotation.scaled ? ", scaled" : "") << (rotation.in_place ? ", in place" : "");
}

class CudaRopeRows : public NeedsGpu, public testing::WithParamInterface<Rotation> {
 protected:
  // Ragged requests, the second without tokens, and a padding token.
  const std::vector<int32_t> cu_seqlens_{0, 5, 5, 8}, first_position_{0, 7, 45};
  const std::vector<float> by_request_and_pair_{0.5f, 2.0f, 3.0f, 5.0f, 7.0f, 0.25f},
      by_head_{1, 2, 3, 4, 5, 6};
};

// The largest head on a GPU, a size that leaves lanes of a warp idle, and heads rotated partly or not at all.
INSTANTIATE_TEST_SUITE_P(
    Each, CudaRopeRows,
    testing::Values(Rotation{DType::kBF16, DType::kBF16, DType::kF32, 128, 64},
                    Rotation{DType::kF16, DType::kF32, DType::kF16, 256, 128, /*interleaved=*/true},
                    Rotation{DType::kF32, DType::kBF16, DType::kBF16, 72, 20, /*interleaved=*/true,
                             /*same_position=*/true},
                    Rotation{DType::kF32, DType::kF32, DType::kF32, 40, 16, false, false, /*scaled=*/true},
                    Rotation{DType::kBF16, DType::kBF16, DType::kF32, 96, 48, true, false, true,
                             /*in_place=*/true},
                    Rotation{DType::kF16, DType::kF16, DType::kF32, 64, 0, false, false, true, true}));

TEST_P(CudaRopeRows, MatchTheHost) {
  const Rotation& rotation = GetParam();
  const TestTensor from = TestTensor::random({kTokens, kHeads, rotation.head_dim}, rotation.from, 1);
  const TestTensor cos = TestTensor::random({kPositions, rotation.pairs}, rotation.angles, 2);
  const TestTensor sin = TestTensor::random({kPositions, rotation.pairs}, rotation.angles, 3);
  TestTensor got({kTokens, kHeads, rotation.head_dim}, rotation.to),
      want({kTokens, kHeads, rotation.head_dim}, rotation.to);
  got.fill(NAN);
  const auto make_args = [&](const auto& tensor, const auto& array, const TestTensor& to) {
    kernels::RopeRowsArgs args{
        .from = tensor(from), .to = tensor(to), .num_reqs = kReqs, .seqlens = {.cu = array(cu_seqlens_)}};
    if (rotation.in_place) args.from = args.to;
    if (rotation.pairs > 0)
      args.angles = {.cos = tensor(cos),
                     .sin = tensor(sin),
                     .interleaved = rotation.interleaved,
                     .first_position = {.per_request = array(first_position_)},
                     .same_position = rotation.same_position};
    if (rotation.scaled)
      args.scales = {
          {.data = array(by_request_and_pair_), .request_stride = 2, .head_stride = 1, .heads_per_scale = 3},
          {.data = array(by_head_), .head_stride = 1}};
    return args;
  };
  if (rotation.in_place)
    for (TestTensor* to : {&got, &want})
      for (int64_t i = 0; i < from.size(); ++i) to->set(i, static_cast<float>(from.at(i)));
  Stream host;
  kernels::apply_rope_rows(make_args([](const TestTensor& tensor) { return tensor.view(); },
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
  kernels::apply_rope_rows(make_args(on_device, upload, got), stream);
  to.download(stream);
  cuda::synchronize(stream);
  // Both devices use the same rotate() and round its result once.
  for (int64_t i = 0; i < got.size(); ++i) ASSERT_EQ(got.at(i), want.at(i)) << "element " << i;
}

}  // namespace
}  // namespace attend::testing_cuda
