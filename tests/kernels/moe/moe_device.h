// Devices of MoE tests: the instruction sets of the CPU, and the GPU. Tensors of a call are in host memory.
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
  // Dtype of x for weights of dtype `weight`.
  DType activation_for(DType weight) const { return on_gpu() ? weight : DType::kF32; }

  void route(const kernels::RouteArgs& args) const;
  // Uses separate scratch and workspace memory full of NaN. On a GPU that adds args.shared; elsewhere it must
  // be empty. On a GPU, scales of weights are offset by
  // `scales_at` bytes.
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
