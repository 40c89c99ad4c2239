// Runs the cases of the conformance suite on the GPU: uploads a case, plans, attends, downloads the results.
#pragma once

#include <functional>
#include <vector>

#include "tests/kernels/conformance/cases/built_case.h"
#include "tests/kernels/cuda/support/device_copy.h"

namespace attend::testing_cuda {

// Every kParts-th case, so that parts may run beside one another.
inline constexpr int kParts = 8;
inline std::vector<conformance::AttentionCase> part_of(const std::vector<conformance::AttentionCase>& cases,
                                                       int part) {
  std::vector<conformance::AttentionCase> chosen;
  for (size_t i = static_cast<size_t>(part); i < cases.size(); i += kParts) chosen.push_back(cases[i]);
  return chosen;
}

// What a case's arrays hold, on the GPU.
kernels::KvIndex upload(const kernels::KvIndex& index, const conformance::BuiltCase& built,
                        DeviceArrays& arrays);
kernels::QueryBatch upload(const kernels::QueryBatch& batch, DeviceArrays& arrays);

// Who derives the plan: a kernel before, or the call (AttentionPlan::plan_inline).
enum class Planning { kBefore, kInline };

// AttentionFn and MlaFn of the conformance suite, for the GPU.
void attention_on_gpu(const kernels::AttentionArgs& args, const conformance::BuiltCase& built);
// As the former; fails where another kernel than the test's would run, as asked of the arguments on the
// device and their plan.
using IsRightKernel = std::function<bool(const kernels::AttentionArgs&, const kernels::cuda::DevicePlan&)>;
// Attends to arguments on the device.
using RunAttention = std::function<void(const kernels::AttentionArgs&, kernels::AttentionPlan&, Stream&)>;
void attention_on_gpu_if(const IsRightKernel& is_right, const kernels::AttentionArgs& args,
                         const conformance::BuiltCase& built, Planning planning = Planning::kBefore,
                         const RunAttention& run = kernels::attention);
// With CTAs that do not wait for the others of a work tile, of which the last then merges what they left:
// fails where the bits are not those of CTAs that wait.
void attention_without_waiting_if(const IsRightKernel& is_right, const kernels::AttentionArgs& args,
                                  const conformance::BuiltCase& built);
void mla_on_gpu(const kernels::MlaArgs& args, const conformance::BuiltCase& built);

// The same with a plan that the call derives, and once more with one made before, which has to give the same
// bits. Fails where the call would not derive its plan.
void attention_planned_inline(const kernels::AttentionArgs& args, const conformance::BuiltCase& built);
void attention_planned_inline_if(const IsRightKernel& is_right, const kernels::AttentionArgs& args,
                                 const conformance::BuiltCase& built);
void mla_planned_inline(const kernels::MlaArgs& args, const conformance::BuiltCase& built);

}  // namespace attend::testing_cuda
