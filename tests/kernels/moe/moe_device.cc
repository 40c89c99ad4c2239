#include "tests/kernels/moe/moe_device.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "attend/kernels/gemm/cpu/linear.h"
#include "attend/kernels/moe/cpu/experts.h"
#include "attend/tensor/arena.h"
#include "attend/tensor/cuda.h"
#include "tests/kernels/cuda/support/device_copy.h"

namespace attend::testing_support {
namespace {

using testing_cuda::DeviceCopy;
using testing_cuda::kGpu;

View<std::byte> bytes_of(const TensorView& view) {
  return {static_cast<std::byte*>(view.data), view.num_bytes()};
}

// Memory filled with NaN, so that reads of unwritten memory are detected.
Tensor poisoned(Arena& arena, size_t num_bytes) {
  const Tensor memory = arena.allocate({static_cast<int64_t>(num_bytes)}, DType::kU8);
  std::memset(memory.view().data, 0xff, num_bytes);
  return memory;
}

}  // namespace

void MoeDevice::route(const kernels::RouteArgs& args) const {
  if (!on_gpu()) {
    kernels::check(args, Stream{});
    return kernels::cpu::route(args);
  }
  cuda::OwnedStream owned(kGpu);
  Stream stream = owned.get();
  const DeviceCopy logits(args.logits, stream), experts(args.experts, stream), weights(args.weights, stream);
  std::optional<DeviceCopy> correction, expert_scales;
  if (!args.correction.empty()) correction.emplace(args.correction, stream);
  if (!args.expert_scales.empty()) expert_scales.emplace(args.expert_scales, stream);
  kernels::route({.logits = logits.view(),
                  .rule = args.rule,
                  .correction = correction ? correction->view() : TensorView(),
                  .expert_scales = expert_scales ? expert_scales->view() : TensorView(),
                  .experts = experts.view(),
                  .weights = weights.view()},
                 stream);
  experts.download(stream);
  weights.download(stream);
  cuda::synchronize(stream);
}

void MoeDevice::moe_experts(kernels::MoeExpertsArgs args, int64_t scales_at) const {
  const size_t scratch_bytes = kernels::experts_scratch_bytes(args.shape, args.x.shape[0], args.x.dtype);
  const size_t workspace_bytes = kernels::cpu::linear_workspace_bytes(
      args.x.shape[0], std::max(args.shape.hidden_size, args.shape.intermediate_size), isa);
  Arena arena(scratch_bytes + workspace_bytes + 128);
  const Tensor scratch = poisoned(arena, scratch_bytes), workspace = poisoned(arena, workspace_bytes);
  if (!on_gpu()) {
    args.scratch = bytes_of(scratch);
    args.workspace = bytes_of(workspace);
    kernels::check(args, Stream{});
    return kernels::cpu::moe_experts(args, isa);
  }
  cuda::OwnedStream owned(kGpu);
  Stream stream = owned.get();
  std::deque<DeviceCopy> copies;
  const auto copied = [&](const TensorView& host) { return copies.emplace_back(host, stream).view(); };
  // Copy of a contiguous view with `scales_at` bytes before it.
  std::deque<std::vector<std::byte>> padded;
  const auto copied_with_offset = [&](const TensorView& host) {
    if (host.empty() || scales_at == 0) return copied(host);
    std::vector<std::byte>& bytes = padded.emplace_back(static_cast<size_t>(scales_at) + host.num_bytes());
    std::memcpy(bytes.data() + scales_at, host.data, host.num_bytes());
    TensorView view = host;
    const TensorView copy = copied(TensorView::contiguous(bytes.data(), DType::kU8, {std::ssize(bytes)}));
    view.data = static_cast<std::byte*>(copy.data) + scales_at;
    view.device = copy.device;
    return view;
  };
  const DeviceCopy out(args.out, stream);
  const auto on_device = [&](const Linear& host) {
    Linear linear = host;
    linear.weight.data = copied(host.weight.data);
    linear.weight.scales = copied_with_offset(host.weight.scales);
    linear.weight.zeros = copied(host.weight.zeros);
    linear.weight.input_order = copied(host.weight.input_order);
    linear.bias = copied(host.bias);
    return linear;
  };
  const Linear gate_up = on_device(args.linears.gate_up.front()), down = on_device(args.linears.down.front());
  args.linears = {.gate_up = {&gate_up, 1}, .down = {&down, 1}};
  if (!args.shared.empty())
    args.shared = {.gate_up = on_device(args.shared.gate_up),
                   .down = on_device(args.shared.down),
                   .gate_out = copied(args.shared.gate_out)};
  args.x = copied(args.x);
  args.experts = copied(args.experts);
  args.weights = copied(args.weights);
  args.scratch = bytes_of(copied(scratch));
  args.out = out.view();
  kernels::moe_experts(args, stream);
  out.download(stream);
  cuda::synchronize(stream);
}

void OnMoeDevice::SetUp() {
  if (GetParam().on_gpu() && cuda::device_count() == 0)
    GTEST_SKIP() << "this machine has no GPU that this build can use";
}

std::vector<MoeDevice> moe_devices() {
  std::vector<MoeDevice> devices{{.type = DeviceType::kCuda}};
  for (const kernels::cpu::Isa isa : kernels::cpu::available_isas()) devices.push_back({.isa = isa});
  return devices;
}

std::string name_of_device(const testing::TestParamInfo<MoeDevice>& test) {
  std::string name = test.param.on_gpu() ? "gpu" : std::string(to_string(test.param.isa));
  std::ranges::replace(name, '-', '_');
  return name;
}

std::ostream& operator<<(std::ostream& out, const MoeDevice& device) {
  return device.on_gpu() ? out << "gpu" : out << device.isa;
}

}  // namespace attend::testing_support
