// Single tokens of a gated delta net in one launch: the bits of the convolution, the recurrence and the norm.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/recurrent/recurrent.h"
#include "attend/tensor/cuda.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/cuda/support/needs_gpu.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/kernels/recurrent/recurrent_steps.h"

namespace attend::kernels {
namespace {

using testing_cuda::DeviceArrays;
using testing_cuda::DeviceCopy;
using testing_cuda::kGpu;
using testing_support::TestTensor;

constexpr int64_t kDim = 128, kTaps = 4, kSlots = 9;

struct Case {
  int64_t k_heads, ratio;
  bool grouped = false, sigmoid = false;  // `grouped`: projections of a key head are adjacent (Qwen3-Next)
  DType dtype = DType::kBF16;
};

// Weights of a layer.
struct Layer {
  explicit Layer(const Case& test_case)
      : k_heads(test_case.k_heads),
        ratio(test_case.ratio),
        q(k_heads * kDim),
        v(ratio * q),
        conv(TestTensor::random({2 * q + v, kTaps}, DType::kF32, 1, 0.5f)),
        a_log(TestTensor::random({k_heads * ratio}, DType::kF32, 2)),
        dt_bias(TestTensor::random({k_heads * ratio}, DType::kF32, 3)),
        norm(TestTensor::random({kDim}, DType::kF32, 4)),
        of(test_case) {}

  int64_t num_projected() const { return 2 * (q + v) + 2 * k_heads * ratio; }

  int64_t k_heads, ratio, q, v;
  TestTensor conv, a_log, dt_bias, norm;
  Case of;
};

// A layer's states and the outputs of a step, on the GPU.
class StepsOfALayer {
 public:
  StepsOfALayer(const Layer& layer, Stream& stream)
      : layer_(layer),
        stream_(stream),
        conv_(TestTensor::random({kSlots, kTaps - 1, 2 * layer.q + layer.v}, layer.of.dtype, 5)),
        state_(TestTensor::random({kSlots, layer.k_heads * layer.ratio, kDim, kDim}, DType::kF32, 6)),
        weights_{DeviceCopy(layer.conv, stream), DeviceCopy(layer.a_log, stream),
                 DeviceCopy(layer.dt_bias, stream), DeviceCopy(layer.norm, stream)},
        conv_copy_(conv_, stream),
        state_copy_(state_, stream) {}

  // Returns the outputs.
  std::vector<std::byte> step(const TestTensor& projected, const test::Batch& host_batch, bool fused) {
    const int64_t num_tokens = projected.view().shape[0], q = layer_.q, v = layer_.v, ratio = layer_.ratio;
    const TestTensor out({num_tokens, v}, layer_.of.dtype),
        convolved({num_tokens, 2 * q + v}, layer_.of.dtype);
    const DeviceCopy x(projected, stream_), out_copy(out, stream_), convolved_copy(convolved, stream_);
    DeviceArrays arrays(stream_);
    const auto array = [&](const std::vector<int32_t>& values) {
      return arrays.view(std::span<const int32_t>(values));
    };
    const RecurrentBatch batch{.rows = array(host_batch.rows),
                               .seqlen_kv = array(host_batch.seqlen_kv),
                               .cu_seqlen_q = array(host_batch.cu_seqlen_q),
                               .load_slots = array(host_batch.load_slots),
                               .save_slots = array(host_batch.save_slots)};
    const TensorView rows = x.view();
    int64_t first = 0;
    const auto part = [&](const TensorView& from, int64_t features, int64_t width) {
      const TensorView columns = from.slice(from.rank - 1, first, first + features);
      first += features;
      return columns.rank == 3 ? columns : columns.split(1, width);
    };
    TensorView parts[6];  // q, k, v, z, b, a
    if (layer_.of.grouped) {
      const TensorView qkvz = rows.slice(1, 0, 2 * (q + v)).split(1, 2 * (kDim + ratio * kDim));
      const TensorView ba = rows.slice(1, 2 * (q + v), rows.shape[1]).split(1, 2 * ratio);
      for (int i = 0; i < 4; ++i) parts[i] = part(qkvz, i < 2 ? kDim : ratio * kDim, 0);
      first = 0;
      for (int i = 4; i < 6; ++i) parts[i] = part(ba, ratio, 0);
    } else {
      for (int i = 0; i < 4; ++i) parts[i] = part(rows, i < 2 ? q : v, i < 2 ? q : v);
      for (int i = 4; i < 6; ++i) parts[i] = part(rows, layer_.k_heads * ratio, ratio);
    }
    const std::array<TensorView, 3> inputs = {parts[0], parts[1], parts[2]};
    const TensorView mixed = convolved_copy.view(), heads = out_copy.view().split(1, kDim);
    const CausalConvArgs conv{.inputs = inputs,
                              .weight = weights_[0].view(),
                              .bias = {},
                              .state = conv_copy_.view(),
                              .out = mixed,
                              .batch = batch};
    const GatedDeltaArgs delta{.q = mixed.slice(1, 0, q).split(1, kDim),
                               .k = mixed.slice(1, q, 2 * q).split(1, kDim),
                               .v = mixed.slice(1, 2 * q, 2 * q + v).split(1, kDim),
                               .alpha = parts[5],
                               .beta = parts[4],
                               .a_log = weights_[1].view(),
                               .dt_bias = weights_[2].view(),
                               .state = state_copy_.view(),
                               .out = heads,
                               .batch = batch};
    const GatedNormArgs norm{
        .x = heads, .weight = weights_[3].view(), .gate = parts[3], .sigmoid = layer_.of.sigmoid};
    if (fused) {
      EXPECT_TRUE(delta_token({.conv = conv, .delta = delta, .norm = norm}, stream_));
    } else {
      causal_conv(conv, stream_);
      gated_delta_rule(delta, stream_);
      gated_norm(norm, stream_);
    }
    out_copy.download(stream_);
    attend::cuda::synchronize(stream_);
    return bytes(out);
  }

  // Contents of all slots.
  std::vector<std::byte> states() {
    conv_copy_.download(stream_);
    state_copy_.download(stream_);
    attend::cuda::synchronize(stream_);
    std::vector<std::byte> all = bytes(conv_), rest = bytes(state_);
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }

 private:
  static std::vector<std::byte> bytes(const TestTensor& tensor) {
    const auto* const data = static_cast<const std::byte*>(tensor.view().data);
    return {data, data + tensor.view().num_bytes()};
  }

  const Layer& layer_;
  Stream& stream_;
  TestTensor conv_, state_;
  std::array<DeviceCopy, 4> weights_;
  DeviceCopy conv_copy_, state_copy_;
};

class GpuDeltaToken : public testing_cuda::NeedsGpu {
 protected:
  void SetUp() override {
    testing_cuda::NeedsGpu::SetUp();
    if (!IsSkipped() && !cuda::gpu_facts(kGpu).runs_sm90a()) GTEST_SKIP() << "clusters of sm_90a";
  }
};

TEST_F(GpuDeltaToken, HasTheBitsOfThreeOperations) {
  for (const Case& test_case : {Case{16, 2}, Case{16, 2, true}, Case{4, 1, false, true}, Case{4, 3, true},
                                Case{3, 4, false, false, DType::kF16}}) {
    SCOPED_TRACE(testing::Message() << test_case.k_heads << " x " << test_case.ratio << " heads, "
                                    << to_string(test_case.dtype));
    const Layer layer(test_case);
    attend::cuda::OwnedStream owned(kGpu);
    Stream stream = owned.get();
    StepsOfALayer fused(layer, stream), separate(layer, stream);
    for (int32_t step = 0; step < 3; ++step) {
      // A new request in the first step, a padding request, one that starts from a snapshot in the first
      // step; two tokens of padding. The last request saves its state in another slot.
      test::Batch batch;
      batch.add(2, step, 1);
      batch.add(0, step, 1);
      batch.add(5, 8 + step, 1);
      batch.add(3, 3 + step, 1, step == 0 ? 6 : 0);
      batch.save_slots.resize(6);
      if (step == 1) batch.save_slots[3] = 7;
      const TestTensor projected =
          TestTensor::random({6, layer.num_projected()}, test_case.dtype, 10 + static_cast<uint64_t>(step));
      const auto got = fused.step(projected, batch, true), expected = separate.step(projected, batch, false);
      const size_t row_bytes = got.size() / 6;
      for (const size_t token : {0, 2, 3})
        EXPECT_TRUE(std::equal(got.begin() + static_cast<std::ptrdiff_t>(token * row_bytes),
                               got.begin() + static_cast<std::ptrdiff_t>((token + 1) * row_bytes),
                               expected.begin() + static_cast<std::ptrdiff_t>(token * row_bytes)))
            << "step " << step << ", token " << token;
      for (const size_t token : {1, 4, 5})
        EXPECT_TRUE(std::all_of(got.begin() + static_cast<std::ptrdiff_t>(token * row_bytes),
                                got.begin() + static_cast<std::ptrdiff_t>((token + 1) * row_bytes),
                                [](std::byte byte) { return byte == std::byte{0}; }))
            << "step " << step << ", padding " << token;
      EXPECT_TRUE(fused.states() == separate.states()) << "step " << step;
    }
  }
}

TEST_F(GpuDeltaToken, DeclinesManyRequests) {
  attend::cuda::OwnedStream owned(kGpu);
  Stream stream = owned.get();
  const auto expect_declined = [&](const DeltaTokenArgs& args) { EXPECT_FALSE(delta_token(args, stream)); };
  test::Batch batch;
  for (int32_t i = 0; i < 9; ++i) batch.add(0, 0, 1);
  const Tensor x = attend::cuda::zeros({9, 2, kDim}, DType::kBF16, kGpu),
               v = attend::cuda::zeros({9, 4, kDim}, DType::kBF16, kGpu),
               gates = attend::cuda::zeros({9, 2, 2}, DType::kBF16, kGpu),
               weight = attend::cuda::zeros({1024, kTaps}, DType::kF32, kGpu),
               heads = attend::cuda::zeros({4}, DType::kF32, kGpu),
               window = attend::cuda::zeros({1, 3, 1024}, DType::kBF16, kGpu),
               out = attend::cuda::zeros({9, 1024}, DType::kBF16, kGpu),
               state = attend::cuda::zeros({1, 4, kDim, kDim}, DType::kF32, kGpu),
               norm = attend::cuda::zeros({kDim}, DType::kF32, kGpu);
  DeviceArrays arrays(stream);
  const auto array = [&](const std::vector<int32_t>& values) {
    return arrays.view(std::span<const int32_t>(values));
  };
  const RecurrentBatch recurrent{.rows = array(batch.rows),
                                 .seqlen_kv = array(batch.seqlen_kv),
                                 .cu_seqlen_q = array(batch.cu_seqlen_q)};
  const std::array<TensorView, 3> inputs = {x.view(), x.view(), v.view()};
  expect_declined(
      {.conv =
           {.inputs = inputs, .weight = weight, .bias = {}, .state = window, .out = out, .batch = recurrent},
       .delta = {.q = x,
                 .k = x,
                 .v = v,
                 .alpha = gates,
                 .beta = gates,
                 .a_log = heads,
                 .dt_bias = heads,
                 .state = state,
                 .out = v,
                 .batch = recurrent},
       .norm = {.x = v, .weight = norm, .gate = v}});
}

}  // namespace
}  // namespace attend::kernels
