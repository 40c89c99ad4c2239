// Where the kernels of mixtures of experts are tested: the CPU's instruction sets and the GPU. Tensors of a
// call lie in host memory.
#pragma once

#include <gtest/gtest.h>

#include <ostream>

#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/fused/operations.h"

namespace attend::testing_support {

struct MoeDevice {
  DeviceType type = DeviceType::kCpu;
  kernels::cpu::Isa isa = kernels::cpu::Isa::kPortable;

  bool on_gpu() const { return type == DeviceType::kCuda; }
  // What x is when weights are `weight`.
  DType activation_for(DType weight) const { return on_gpu() ? weight : DType::kF32; }

  void route(const kernels::RouteArgs& args) const;
  // With scratch and workspace of its own, full of NaN. On a GPU scales of weights begin `scales_at` bytes
  // behind where memory does.
  void moe_experts(kernels::MoeExpertsArgs args, int64_t scales_at = 0) const;
};

class OnMoeDevice : public testing::TestWithParam<MoeDevice> {
 protected:
  void SetUp() override;
};

std::vector<MoeDevice> moe_devices();
std::string name_of_device(const testing::TestParamInfo<MoeDevice>& test);
std::ostream& operator<<(std::ostream& out, const MoeDevice& device);

}  // namespace attend::testing_support
