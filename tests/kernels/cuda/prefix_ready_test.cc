// Attention that starts with earlier keys before the preceding kernel has finished (prefix_ready,
// attention_batch.h).
#include <gtest/gtest.h>

#include "tests/kernels/conformance/cases/cases.h"
#include "tests/kernels/conformance/run.h"
#include "tests/kernels/cuda/support/device_case.h"
#include "tests/kernels/cuda/support/late_case.h"
#include "tests/kernels/cuda/support/needs_gpu.h"

namespace attend::testing_cuda {
namespace {

using conformance::AttentionCase;
using conformance::on_tensor_cores;
using kernels::KvIndexKind;
using kernels::SplitRule;

class CudaPrefixReadyPart : public NeedsGpu, public testing::WithParamInterface<int> {};

TEST_P(CudaPrefixReadyPart, ConformsToTheReference) {
  run_conformance(attention_after_late_keys,
                  select_part(on_tensor_cores(conformance::conformance_cases()), GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Every, CudaPrefixReadyPart, testing::Range(0, kParts));

using CudaPrefixReady = NeedsGpu;

// Decode or verify step of requests that end around the ends of KV tiles.
AttentionCase step_around_tile_ends(KvIndexKind index, int seqlen_q) {
  AttentionCase c{.num_q_heads = 8,
                  .num_kv_heads = 2,
                  .head_dim_qk = 128,
                  .head_dim_v = 128,
                  .index = index,
                  .page_size = index == KvIndexKind::kContiguous ? 1 : 16,
                  .page_order = conformance::PageOrder::kShuffled,
                  .split_rule = SplitRule::kBalanced};
  for (const int seqlen_kv : {1, 2, 8, 63, 64, 65, 66, 71, 72, 127, 128, 129, 191, 192, 193, 256, 257, 700})
    if (seqlen_kv >= seqlen_q) c.requests.push_back({seqlen_q, seqlen_kv});
  c.seed = static_cast<uint64_t>(seqlen_q);
  return c;
}

TEST_F(CudaPrefixReady, ConformsIfKeysEndAnywhereInATile) {
  std::vector<AttentionCase> cases;
  for (const KvIndexKind index :
       {KvIndexKind::kRequestRows, KvIndexKind::kPageTable, KvIndexKind::kCsr, KvIndexKind::kContiguous})
    for (int seqlen_q = 1; seqlen_q <= 8; ++seqlen_q) cases.push_back(step_around_tile_ends(index, seqlen_q));
  run_conformance(attention_after_late_keys, on_tensor_cores(cases));
}
TEST_F(CudaPrefixReady, ConformsIfKeysEndAnywhereInATileUnderFixedSplits) {
  std::vector<AttentionCase> cases;
  for (int seqlen_q = 1; seqlen_q <= 8; ++seqlen_q) {
    cases.push_back(step_around_tile_ends(KvIndexKind::kPageTable, seqlen_q));
    cases.back().split_rule = SplitRule::kFixed;
    cases.back().split_tokens = 64;
  }
  run_conformance(attention_after_late_keys, on_tensor_cores(cases));
}
TEST_F(CudaPrefixReady, ConformsForOneRequestOnManyCtas) {
  std::vector<AttentionCase> cases;
  for (const int seqlen_kv : {300, 1024, 1025, 5000})
    for (const int seqlen_q : {1, 4, 24}) {
      cases.push_back(step_around_tile_ends(KvIndexKind::kRequestRows, seqlen_q));
      cases.back().requests = {{seqlen_q, seqlen_kv}};
    }
  run_conformance(attention_after_late_keys, on_tensor_cores(cases));
}

TEST_F(CudaPrefixReady, ConformsForLatentRows) {
  run_mla_conformance(mla_after_late_keys, on_tensor_cores(conformance::mla_conformance_cases()));
}
TEST_F(CudaPrefixReady, ConformsForLatentRowsOnManyCtas) {
  std::vector<AttentionCase> cases;
  for (const int num_heads : {16, 128})
    for (const int seqlen_kv : {31, 32, 33, 64, 65, 96, 97, 1500})
      cases.push_back({.requests = {{1, seqlen_kv}, {2, 333}, {1, 1}},
                       .num_q_heads = num_heads,
                       .num_kv_heads = 1,
                       .head_dim_qk = 576,
                       .head_dim_v = 512,
                       .rope_dim = 64,
                       .page_size = 64,
                       .split_rule = SplitRule::kBalanced});
  cases = on_tensor_cores(cases);
  for (AttentionCase& c : cases) c.kv_dtype = c.q_dtype;
  for (size_t i = 0, num_cases = cases.size(); i < num_cases; i += 3) {
    cases.push_back(cases[i]);
    cases.back().kv_dtype = i % 2 == 0 ? DType::kF8E4M3 : DType::kF8E5M2;
  }
  run_mla_conformance(mla_after_late_keys, cases);
}

TEST_F(CudaPrefixReady, ProducesTheSameBitsAHundredTimesInAGraph) {
  for (const SplitRule rule : {SplitRule::kBalanced, SplitRule::kFixed}) {
    std::vector<AttentionCase> cases = {step_around_tile_ends(KvIndexKind::kRequestRows, 1),
                                        step_around_tile_ends(KvIndexKind::kCsr, 4)};
    for (AttentionCase& c : cases) c.split_rule = rule;
    for (const AttentionCase& c : on_tensor_cores(cases)) {
      conformance::BuiltCase built(c);
      cuda::OwnedStream owned(kGpu);
      LateCase late(built.args, built, owned.get());
      late.queue(false);
      late.download();
      const std::vector<unsigned char> expected = built.result_bytes();
      cuda::Graph graph(owned.get(), [&] { late.queue(true); });
      for (int i = 0; i < 100; ++i) {
        built.poison_results();
        graph.launch(owned.get());
        late.download();
        ASSERT_EQ(built.result_bytes(), expected) << "replay " << i << " of " << c;
      }
    }
  }
}

}  // namespace
}  // namespace attend::testing_cuda
