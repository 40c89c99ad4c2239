// Target: an implementation of the recurrent layers that a test runs on. Tensors and arrays of a call are in
// host memory, and activations are f32. A GPU target converts activations to its dtype, and results back.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/recurrent/recurrent.h"
#include "tests/kernels/recurrent/recurrent_steps.h"

namespace attend::kernels::test {

struct Target {
  std::string name;
  bool on_gpu = false;
  cpu::Isa isa = cpu::Isa::kPortable;  // of the CPU
  DType dtype = DType::kF32;           // of a GPU's activations
};

// Instruction sets of this CPU, and the GPU in f32.
std::vector<Target> f32_targets();
// The GPU in f16 and bf16.
std::vector<Target> half_targets();

// Suffix of a parameterized test.
inline std::string target_name(const testing::TestParamInfo<Target>& info) { return info.param.name; }

class NeedsTarget : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override;
};

// Checks the arguments, then calls the operation.
void run(const CausalConvArgs& args, const Target& target);
void run(const SelectiveScanArgs& args, const Target& target);
// Allocates the workspace itself, full of NaN.
void run(const GatedDeltaArgs& args, const Target& target);
void run(const GatedNormArgs& args, const Target& target);
void run(const GroupedGatedNormArgs& args, const Target& target);

// Slot of the request of run_steps().
constexpr int32_t kStepsRow = 3;

// Runs the steps of one request from its first token on, which end at `ends`. Layer::args(batch, first,
// num_tokens) returns the arguments for tokens [first, first + num_tokens).
template <class Layer>
void run_steps(Layer& layer, std::span<const int32_t> ends, const Target& target) {
  int32_t first = 0;
  for (const int32_t end : ends) {
    Batch batch;
    batch.add(kStepsRow, first, end - first);
    run(layer.args(batch, first, end - first), target);
    first = end;
  }
}

// Rounds each element of a contiguous f32 view to the target's activations.
void round_elements(const TensorView& view, const Target& target);

}  // namespace attend::kernels::test
