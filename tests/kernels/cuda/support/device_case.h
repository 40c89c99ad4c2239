// Runs conformance cases on the GPU: uploads a case, plans, attends, and downloads the results.
#pragma once

#include <functional>
#include <vector>

#include "tests/kernels/conformance/cases/built_case.h"
#include "tests/kernels/cuda/support/device_copy.h"

namespace attend::testing_cuda {

// Selects every kParts-th case, so that parts can run concurrently.
inline constexpr int kParts = 8;
inline std::vector<conformance::AttentionCase> select_part(
    const std::vector<conformance::AttentionCase>& cases, int part) {
  std::vector<conformance::AttentionCase> chosen;
  for (size_t i = static_cast<size_t>(part); i < cases.size(); i += kParts) chosen.push_back(cases[i]);
  return chosen;
}

// Uploads the arrays of a case.
kernels::KvIndex upload(const kernels::KvIndex& index, const conformance::BuiltCase& built,
                        DeviceArrays& arrays);
kernels::QueryBatch upload(const kernels::QueryBatch& batch, DeviceArrays& arrays);

// Source of the plan: a separate kernel, or the attention call itself (AttentionPlan::plan_inline).
enum class Planning { kBefore, kInline };

// AttentionFn and MlaFn of the conformance suite for the GPU.
void attention_on_gpu(const kernels::AttentionArgs& args, const conformance::BuiltCase& built);
// Returns true if the kernel under test is chosen for arguments on the device and their plan.
using IsRightKernel = std::function<bool(const kernels::AttentionArgs&, const kernels::cuda::DevicePlan&)>;
// Runs attention with arguments on the device.
using RunAttention = std::function<void(const kernels::AttentionArgs&, kernels::AttentionPlan&, Stream&)>;
// Like attention_on_gpu(), but throws if `is_right` returns false.
void attention_on_gpu_if(const IsRightKernel& is_right, const kernels::AttentionArgs& args,
                         const conformance::BuiltCase& built, Planning planning = Planning::kBefore,
                         const RunAttention& run = kernels::attention);
// Runs attention with CTAs that do not wait for other CTAs of a work tile, so that the last CTA merges.
// Throws if the bits differ from those of CTAs that wait.
void attention_without_waiting_if(const IsRightKernel& is_right, const kernels::AttentionArgs& args,
                                  const conformance::BuiltCase& built);
void mla_on_gpu(const kernels::MlaArgs& args, const conformance::BuiltCase& built);

// Runs attention with an inline plan and with a separate plan. Throws if the bits differ, or if the call
// would not derive its plan inline.
void attention_planned_inline(const kernels::AttentionArgs& args, const conformance::BuiltCase& built);
void attention_planned_inline_if(const IsRightKernel& is_right, const kernels::AttentionArgs& args,
                                 const conformance::BuiltCase& built);
void mla_planned_inline(const kernels::MlaArgs& args, const conformance::BuiltCase& built);

}  // namespace attend::testing_cuda
