// Repeated attention steps return the same bits, eagerly and in one captured graph. The lengths change
// between replays, also to zero.
#include "tests/kernels/cuda/support/attention_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "attend/kernels/attention/cuda/common/plan/device_plan.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "tests/kernels/cuda/support/needs_gpu.h"

namespace attend::testing_cuda {
namespace {

using conformance::Lengths;
using kernels::SplitRule;
using kernels::cuda::AttentionKernel;

constexpr int kRepeats = 100;

struct Step {
  std::string name;
  StepShape shape;
  AttentionKernel kernel;         // kernel on Hopper
  bool waits_at_barrier = false;  // CTAs of a work tile wait for one another before they merge
};
std::ostream& operator<<(std::ostream& out, const Step& step) { return out << step.name; }

std::vector<Step> steps() {
  constexpr StepShape kDecode{.num_reqs = 4};
  constexpr StepShape kLatent{.num_reqs = 4, .num_q_heads = 16, .mla = true};
  std::vector<Step> all;
  const auto add = [&](const char* name, const StepShape& shape, AttentionKernel kernel,
                       bool waits_at_barrier = false) {
    all.push_back({name, shape, kernel, waits_at_barrier});
    return &all.back().shape;
  };
  // Decode in clusters, of several requests and of one; then with CTAs that wait at a barrier.
  add("Decode", kDecode, AttentionKernel::kSm80Tiles);
  add("DecodeOfARequest", kDecode, AttentionKernel::kSm90SingleRequestDecode)->num_reqs = 1;
  add("DecodeOfLongRequests", kDecode, AttentionKernel::kSm80Tiles, true)->short_requests = false;
  all.push_back(all.back());
  all.back().name = "DecodeOfALongRequest", all.back().shape.num_reqs = 1;
  add("DecodeInE4m3", kDecode, AttentionKernel::kSm80Tiles)->kv_dtype = DType::kF8E4M3;
  add("DecodeUnderFixedSplits", kDecode, AttentionKernel::kSm80Tiles)->split_rule = SplitRule::kFixed;
  // Verify with few work tiles of 16 and 32 rows; then enough rows for the prefill kernel, in tiles of 32 and
  // 64.
  constexpr StepShape kVerify{.num_reqs = 2, .max_seqlen_q = 4};
  constexpr StepShape kManyVerify{.num_reqs = 4, .max_seqlen_q = 8, .num_q_heads = 32, .num_kv_heads = 8};
  add("Verify", kVerify, AttentionKernel::kSm80Tiles);
  add("VerifyOfLongRequests", kVerify, AttentionKernel::kSm80Tiles, true)->short_requests = false;
  StepShape* const taller = add("VerifyOfManyTokens", kVerify, AttentionKernel::kSm80Tiles, true);
  taller->max_seqlen_q = 8, taller->short_requests = false;
  add("VerifyOfManyHeads", kManyVerify, AttentionKernel::kSm90Prefill, true);
  add("VerifyOfManyRows", kManyVerify, AttentionKernel::kSm90Prefill, true)->max_seqlen_q = 16;
  add("VerifyUnderFixedSplits", kManyVerify, AttentionKernel::kSm80Tiles)->split_rule = SplitRule::kFixed;
  // MLA decode and verify: heads in one row tile, in several, and grouped with their tokens.
  add("Latent", kLatent, AttentionKernel::kSm90Mla);
  add("LatentOfManyHeads", kLatent, AttentionKernel::kSm90Mla)->num_q_heads = 128;
  add("LatentVerify", kLatent, AttentionKernel::kSm90Mla)->max_seqlen_q = 3;
  StepShape* const grouped = add("LatentVerifyOfManyHeads", kLatent, AttentionKernel::kSm90Mla);
  grouped->num_q_heads = 128, grouped->max_seqlen_q = 2;
  add("LatentWithAWindow", kLatent, AttentionKernel::kSm90Mla)->attention_mask.window_left = 500;
  for (size_t i = 0, first = all.size() - 5; i < 4; ++i) {
    all.push_back(all[first + i]);
    all.back().name += "InE4m3";
    all.back().shape.kv_dtype = DType::kF8E4M3;
  }
  add("LatentUnderFixedSplits", kLatent, AttentionKernel::kRows)->split_rule = SplitRule::kFixed;
  // Extend with work tiles for every SM.
  constexpr StepShape kExtend{
      .num_reqs = 2, .max_seqlen_q = 2048, .max_seqlen_kv = 2048, .num_q_heads = 16, .num_kv_heads = 8};
  add("Extend", kExtend, AttentionKernel::kSm90Prefill);
  add("ExtendWithAWindow", kExtend, AttentionKernel::kSm90Prefill)->attention_mask = {.window_left = 300,
                                                                                      .window_right = 77};
  return all;
}

// Lengths of successive steps of one shape.
std::vector<std::vector<Lengths>> lengths_for(const StepShape& shape) {
  const int q = shape.max_seqlen_q, max_kv = shape.max_seqlen_kv;
  std::vector<std::vector<Lengths>> all{{{q, max_kv}, {(q + 1) / 2, 17}, {1, 64}, {q, 65}},
                                        {{q, q}, {q, q}, {q, q}, {q, q}},
                                        {{0, 0}, {q, max_kv}, {1, 0}, {1, 1}},
                                        {{q, max_kv}, {q, max_kv}, {q, max_kv}, {q, max_kv}},
                                        {{0, 0}, {0, 5}, {0, 0}, {0, 0}},
                                        {{1, 2}, {(q + 1) / 2, max_kv - 1}, {q, 128}, {q, 129}}};
  for (std::vector<Lengths>& lengths : all) {
    lengths.resize(static_cast<size_t>(shape.num_reqs));
    for (Lengths& request : lengths)
      if (request.seqlen_kv > 0) request.seqlen_kv = std::max(request.seqlen_kv, request.seqlen_q);
  }
  return all;
}

void expect_kernel(const AttentionStep& step, const Step& expected) {
  if (!kernels::cuda::gpu_facts(kGpu).runs_sm90a()) return;
  EXPECT_EQ(static_cast<int>(step.kernel()), static_cast<int>(expected.kernel));
  const kernels::cuda::PlanView& plan = step.plan().view();
  if (expected.waits_at_barrier) {
    EXPECT_TRUE(plan.ctas_merge && plan.streamed && plan.cluster_size == 1);
  }
}

class CudaStep : public NeedsGpu, public testing::WithParamInterface<Step> {};

TEST_P(CudaStep, ProducesTheSameBitsAHundredTimes) {
  cuda::OwnedStream stream(kGpu);
  AttentionStep step(GetParam().shape, stream.get());
  step.set_lengths(lengths_for(GetParam().shape).front());
  step.queue();
  expect_kernel(step, GetParam());
  const auto first = step.result();
  for (int i = 0; i < kRepeats; ++i) {
    step.poison_result();
    step.queue();
    ASSERT_EQ(step.result(), first) << "repeat " << i;
  }
}

void expect_graph_matches_eager_bits(const StepShape& shape, Planning planning) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  AttentionStep step(shape, stream);
  const std::vector<std::vector<Lengths>> lengths = lengths_for(shape);
  std::vector<std::vector<uint8_t>> eager;
  for (const std::vector<Lengths>& these : lengths) {
    step.set_lengths(these);
    step.queue();
    eager.push_back(step.result());
  }
  ASSERT_TRUE(eager[2] != eager[0]);
  cuda::Graph graph(stream, [&] { step.queue(planning); });
  // Repeats each batch of lengths, then alternates between all of them.
  for (size_t i = 0, at = 0; i < kRepeats; ++i, at = (at + i / 16) % lengths.size()) {
    step.set_lengths(lengths[at]);
    step.poison_result();
    graph.launch(stream);
    ASSERT_EQ(step.result(), eager[at]) << "replay " << i << " with lengths " << at;
  }
}
TEST_P(CudaStep, HasTheEagerBitsInOneGraphForAllLengths) {
  expect_graph_matches_eager_bits(GetParam().shape, Planning::kBefore);
}
// Attention derives its plan itself; the eager step uses a separate plan.
TEST_P(CudaStep, HasTheEagerBitsInOneGraphWithInlinePlanForAllLengths) {
  expect_graph_matches_eager_bits(GetParam().shape, Planning::kInline);
}

// CTAs that wait at a barrier may occupy SMs that CTAs of the other stream need.
TEST_P(CudaStep, ProducesTheSameBitsWithConcurrentKernels) {
  cuda::OwnedStream streams[2] = {cuda::OwnedStream(kGpu), cuda::OwnedStream(kGpu)};
  AttentionStep steps[2] = {{GetParam().shape, streams[0].get()}, {GetParam().shape, streams[1].get()}};
  std::vector<uint8_t> first;
  for (AttentionStep& step : steps) {
    step.set_lengths(lengths_for(GetParam().shape).front());
    step.queue(Planning::kInline);
    first = step.result();
  }
  for (int i = 0; i < 3 * kRepeats; ++i)
    for (AttentionStep& step : steps) step.queue(Planning::kInline);
  for (AttentionStep& step : steps) EXPECT_EQ(step.result(), first);
}
INSTANTIATE_TEST_SUITE_P(Each, CudaStep, testing::ValuesIn(steps()), testing::PrintToStringParamName());

using CudaFixedSplits = NeedsGpu;

TEST_F(CudaFixedSplits, HaveTheSameBitsIfPartialResultsExceedTheWorkspace) {
  cuda::OwnedStream stream(kGpu);
  const StepShape shape{.num_reqs = 5, .split_rule = SplitRule::kFixed};
  StepShape tight = shape;
  tight.max_kv_tokens = 1;
  std::vector<std::vector<uint8_t>> results;
  for (const StepShape& step_shape : {shape, tight}) {
    AttentionStep step(step_shape, stream.get());
    step.set_lengths(std::vector<Lengths>{{1, 3000}, {1, 1}, {1, 2900}, {1, 777}, {1, 0}});
    step.queue();
    results.push_back(step.result());
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace attend::testing_cuda
