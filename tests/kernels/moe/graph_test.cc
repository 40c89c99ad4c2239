// A captured graph of route() and moe_experts() is valid for every routing: its grids depend only on the
// number of tokens.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "attend/tensor/cuda.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/cuda/support/needs_gpu.h"
#include "tests/kernels/dense/test_tensor.h"
#include "tests/kernels/moe/moe_device.h"

namespace attend::kernels {
namespace {

using testing_cuda::DeviceCopy;
using testing_cuda::kGpu;
using testing_support::TestTensor;

using GpuMoeGraph = testing_cuda::NeedsGpu;

constexpr MoeShape kShape{.num_experts = 24, .top_k = 3, .hidden_size = 64, .intermediate_size = 32};

// All tensors of a step on the GPU.
class Step {
 public:
  Step(int64_t num_tokens, DType dtype, Stream& stream)
      : stream_(stream),
        host_logits_({num_tokens, kShape.num_experts}, DType::kF32),
        host_out_({num_tokens, kShape.hidden_size}, dtype),
        logits_(host_logits_, stream),
        experts_(TestTensor({num_tokens, kShape.top_k}, DType::kI32), stream),
        weights_(TestTensor({num_tokens, kShape.top_k}, DType::kF32), stream),
        x_(TestTensor::random({num_tokens, kShape.hidden_size}, dtype, 1), stream),
        gate_up_(TestTensor::random({24 * 2 * 32, 64}, dtype, 2, 0.1f), stream),
        down_(TestTensor::random({24 * 64, 32}, dtype, 3, 0.2f), stream),
        out_(host_out_, stream),
        scratch_bytes_(experts_scratch_bytes(kShape, num_tokens, dtype)),
        scratch_(cuda::empty({static_cast<int64_t>(scratch_bytes_)}, DType::kU8, kGpu)) {
    cuda::synchronize(stream);
  }

  void queue() {
    const Linear gate_up{.weight = gate_up_.view()}, down{.weight = down_.view()};
    route({.logits = logits_.view(), .rule = {}, .experts = experts_.view(), .weights = weights_.view()},
          stream_);
    moe_experts({.shape = kShape,
                 .x = x_.view(),
                 .experts = experts_.view(),
                 .weights = weights_.view(),
                 .linears = {.gate_up = {&gate_up, 1}, .down = {&down, 1}},
                 .out = out_.view(),
                 .scratch = {static_cast<std::byte*>(scratch_.view().data), scratch_bytes_}},
                stream_);
  }

  void set_logits(const TestTensor& logits) { cuda::copy(logits, logits_.view(), stream_); }

  std::vector<double> out_after(const std::function<void()>& run) {
    host_out_.fill(std::numeric_limits<float>::quiet_NaN());
    cuda::copy(host_out_, out_.view(), stream_);
    run();
    out_.download(stream_);
    cuda::synchronize(stream_);
    return host_out_.values();
  }

 private:
  Stream& stream_;
  TestTensor host_logits_, host_out_;
  DeviceCopy logits_, experts_, weights_, x_, gate_up_, down_, out_;
  size_t scratch_bytes_;
  Tensor scratch_;
};

TEST_F(GpuMoeGraph, MatchesTheEagerBitsForEveryRouting) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32})
    for (const int64_t num_tokens : {1, 40, 300}) {
      cuda::OwnedStream owned(kGpu);
      Stream& stream = owned.get();
      Step step(num_tokens, dtype, stream);
      step.set_logits(TestTensor({num_tokens, kShape.num_experts}, DType::kF32));
      cuda::Graph graph(stream, [&] { step.queue(); });
      // Even routing, and routing of all tokens to the same three experts.
      for (const float deviation : {1.0f, 3.0f, 0.0f}) {
        step.set_logits(TestTensor::random({num_tokens, kShape.num_experts}, DType::kF32, 7, deviation));
        const auto eager = step.out_after([&] { step.queue(); });
        EXPECT_TRUE(std::ranges::none_of(eager, [](double value) { return std::isnan(value); }));
        EXPECT_EQ(step.out_after([&] { graph.launch(stream); }), eager)
            << num_tokens << " tokens, " << to_string(dtype);
      }
    }
}

}  // namespace
}  // namespace attend::kernels
