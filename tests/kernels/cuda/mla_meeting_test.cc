// MLA's CTAs merge together, whenever they run.
#include <gtest/gtest.h>

#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/tensor/cuda.h"
#include "tests/kernels/conformance/cases.h"
#include "tests/kernels/conformance/run.h"
#include "tests/kernels/cuda/device_case.h"
#include "tests/kernels/cuda/needs_gpu.h"
#include "tests/kernels/cuda/occupied_sms.h"

namespace attend::testing_cuda {
namespace {

using conformance::AttentionCase;

// Work tiles in two CTA ranges, in a few and in nearly all; ranges without any.
std::vector<AttentionCase> cases_of_shared_work_tiles() {
  std::vector<AttentionCase> cases;
  const auto add = [&](std::vector<conformance::Lengths> requests, int num_heads) {
    cases.push_back({.requests = std::move(requests),
                     .num_q_heads = num_heads,
                     .num_kv_heads = 1,
                     .head_dim_qk = 576,
                     .head_dim_v = 512,
                     .rope_dim = 64,
                     .page_size = 64,
                     .split_rule = kernels::SplitRule::kBalanced,
                     .seed = cases.size() + 1});
  };
  add({{1, 9000}}, 16);
  add({{1, 4100}}, 128);
  add({{2, 3000}, {1, 2900}, {1, 70}}, 64);
  for (const int num_heads : {16, 128}) add(std::vector<conformance::Lengths>(90, {1, 160}), num_heads);
  add({{1, 100}}, 16);
  cases = conformance::on_tensor_cores(cases);
  for (AttentionCase& c : cases) c.kv_dtype = c.q_dtype;
  return cases;
}

using CudaMlaMeeting = NeedsGpu;

TEST_F(CudaMlaMeeting, MergesWhatCtasHaveLeft) {
  run_mla_conformance(mla_on_gpu, cases_of_shared_work_tiles());
}

// Those that run first wait in vain for those that find no SM, and go; as many at once as there is room for.
TEST_F(CudaMlaMeeting, MergesWhereOtherKernelsHoldSms) {
  constexpr int64_t kNanoseconds = 4'000'000;  // longer than any CTA waits here
  cuda::OwnedStream others(kGpu);
  const int num_sms = kernels::cuda::gpu_facts(kGpu).num_sms;
  for (const int num_left : {1, num_sms / 2, num_sms - 1}) {
    const auto occupy = [&] { launch_occupied_sms(num_sms - num_left, kNanoseconds, others.get().handle); };
    run_mla_conformance(
        [&](const kernels::MlaArgs& args, const conformance::BuiltCase& built) {
          mla_on_gpu_after(occupy, args, built);
          cuda::synchronize(others.get());
        },
        cases_of_shared_work_tiles());
  }
}

}  // namespace
}  // namespace attend::testing_cuda
