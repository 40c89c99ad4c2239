// Absorbed MLA on the GPU with the kernels of sm80 and sm90.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/kernels/conformance/cases/cases.h"
#include "tests/kernels/conformance/run.h"
#include "tests/kernels/cuda/support/device_case.h"
#include "tests/kernels/cuda/support/needs_gpu.h"

namespace attend::testing_cuda {
namespace {

using conformance::AttentionCase;
using conformance::on_tensor_cores;
using kernels::KvIndexKind;

using CudaMla = NeedsGpu;

TEST_F(CudaMla, ServesMlaLayers) { run_mla_conformance(mla_on_gpu, conformance::mla_conformance_cases()); }
TEST_F(CudaMla, ServesMlaLayersOnTensorCores) {
  std::vector<AttentionCase> cases = conformance::mla_conformance_cases();
  // Many keys, so that CTAs split them: few rows, and several row tiles.
  for (const int num_heads : {16, 128})
    cases.push_back({.requests = {{1, 1500}, {2, 333}, {1, 1}},
                     .num_q_heads = num_heads,
                     .num_kv_heads = 1,
                     .head_dim_qk = 576,
                     .head_dim_v = 512,
                     .rope_dim = 64,
                     .page_size = 64,
                     .split_rule = kernels::SplitRule::kBalanced});
  cases = on_tensor_cores(cases);
  for (AttentionCase& c : cases) c.kv_dtype = c.q_dtype;
  run_mla_conformance(mla_on_gpu, cases);
}

// Rows that TMA copies in boxes of all sizes, and rows that threads copy: small pages, gaps, windows, and
// ends within a tile. Groups of 64 heads, and heads in several tiles.
std::vector<AttentionCase> cases_of_latent_pages() {
  std::vector<AttentionCase> cases;
  const auto add = [&](KvIndexKind index, int page_size, int num_heads) {
    cases.push_back({.requests = {{1, 400}, {3, 129}, {2, 64}, {1, 63}, {1, 0}},
                     .num_q_heads = num_heads,
                     .num_kv_heads = 1,
                     .head_dim_qk = 576,
                     .head_dim_v = 512,
                     .rope_dim = 64,
                     .index = index,
                     .page_size = page_size,
                     .page_order = conformance::PageOrder::kShuffled,
                     .split_rule = kernels::SplitRule::kBalanced,
                     .seed = cases.size() + 1});
    return cases.size() - 1;
  };
  for (const int page_size : {1, 4, 8, 16, 32, 64, 128})
    for (const KvIndexKind index : {KvIndexKind::kRequestRows, KvIndexKind::kPageTable, KvIndexKind::kCsr})
      add(index, page_size, index == KvIndexKind::kPageTable && page_size % 63 == 1 ? 128 : 16);
  add(KvIndexKind::kContiguous, 1, 16);
  add(KvIndexKind::kContiguous, 1, 96);
  for (const int page_size : {1, 64}) {
    cases[add(KvIndexKind::kPageTable, page_size, 128)].window_left = 100;
    cases[add(KvIndexKind::kPageTable, page_size, 16)].chunk = 96;
    cases[add(KvIndexKind::kPageTable, page_size, 16)].window_right = 1;
    cases[add(KvIndexKind::kPageTable, page_size, 128)].strided = true;
    cases[add(KvIndexKind::kPageTable, page_size, 192)].split_rule = kernels::SplitRule::kNone;
    AttentionCase& with_tree = cases[add(KvIndexKind::kPageTable, page_size, 16)];
    with_tree.tree = conformance::TreeShape::kTree;
    with_tree.requests.pop_back();  // this request has fewer keys than queries
    cases[add(KvIndexKind::kPageTable, page_size, 64)].spread = conformance::ScoreSpread::kSharp;
    cases[add(KvIndexKind::kPageTable, page_size, 5)].logit_cap = 8.0f;
    cases[add(KvIndexKind::kPageTable, page_size, 5)].sinks = true;
    cases[add(KvIndexKind::kPageTable, page_size, 64)].num_pad_tokens = 3;
    cases[add(KvIndexKind::kPageTable, page_size, 64)].num_workers = 3;
  }
  return on_tensor_cores(cases);
}

TEST_F(CudaMla, SupportsLatentRowsInPagesOfAnySize) {
  std::vector<AttentionCase> cases = cases_of_latent_pages();
  for (AttentionCase& c : cases) c.kv_dtype = c.q_dtype;
  run_mla_conformance(mla_on_gpu, cases);
}

// Requests with equal numbers of new tokens: a row tile contains some heads of all their tokens, and
// neighboring CTAs process the other heads.
TEST_F(CudaMla, SupportsRequestsWithEqualNumbersOfTokens) {
  std::vector<AttentionCase> cases;
  for (const int num_tokens : {2, 4, 8})
    for (const int num_heads : {128, 64})
      for (const int page_size : {1, 16, 64}) {
        const auto request = [&](int seqlen_kv) { return conformance::Lengths{num_tokens, seqlen_kv}; };
        cases.push_back({.requests = {request(130), request(64), request(9), request(200)},
                         .num_q_heads = num_heads,
                         .num_kv_heads = 1,
                         .head_dim_qk = 576,
                         .head_dim_v = 512,
                         .rope_dim = 64,
                         .page_size = page_size,
                         .page_order = conformance::PageOrder::kShuffled,
                         .strided = num_tokens == 4,
                         .window_left = page_size == 1 ? 100 : -1,
                         .split_rule = num_tokens == 8 && page_size == 16 ? kernels::SplitRule::kNone
                                                                          : kernels::SplitRule::kBalanced,
                         .num_workers = num_heads == 64 ? 7 : 0,
                         .seed = cases.size() + 1});
      }
  cases = on_tensor_cores(cases);
  for (AttentionCase& c : cases) c.kv_dtype = c.q_dtype;
  run_mla_conformance(mla_on_gpu, cases);
  // Rows of fp8, which the same kernel converts, and scaled rows. Their kernel has the same groups of heads.
  std::erase_if(cases, [](const AttentionCase& c) { return c.num_q_heads != 64 || c.page_size != 16; });
  for (const DType kv_dtype : {DType::kF8E4M3, DType::kU8}) {
    for (AttentionCase& c : cases) c.kv_dtype = kv_dtype;
    run_mla_conformance(mla_on_gpu, cases);
  }
}

TEST_F(CudaMla, SupportsScaledLatentRows) {
  run_mla_conformance(mla_on_gpu, conformance::scaled_row_cases());
}
TEST_F(CudaMla, SupportsScaledLatentRowsInPagesOfAnySizeOnTensorCores) {
  std::vector<AttentionCase> cases = on_tensor_cores(conformance::scaled_row_cases());
  const std::vector<AttentionCase> more = cases_of_latent_pages();
  cases.insert(cases.end(), more.begin(), more.end());
  for (AttentionCase& c : cases) c.kv_dtype = DType::kU8;
  run_mla_conformance(mla_on_gpu, cases);
}

// Latent rows of fp8, which the 16-bit kernel converts: few and many keys, partial tiles, groups of heads.
TEST_F(CudaMla, SupportsLatentRowsOfFp8) {
  std::vector<AttentionCase> cases;
  for (const DType kv_dtype : {DType::kF8E4M3, DType::kF8E5M2})
    for (const DType q_dtype : {DType::kBF16, DType::kF16})
      for (const int page_size : {1, 16, 64})
        for (const int num_heads : {8, 72})
          for (const auto& requests : {std::vector<conformance::Lengths>{{1, 200}, {2, 129}, {1, 63}, {1, 0}},
                                       std::vector<conformance::Lengths>{{1, 600}}})
            cases.push_back({.requests = requests,
                             .num_q_heads = num_heads,
                             .num_kv_heads = 1,
                             .head_dim_qk = 576,
                             .head_dim_v = 512,
                             .rope_dim = 64,
                             .q_dtype = q_dtype,
                             .out_dtype = page_size == 16 ? DType::kF32 : q_dtype,
                             .kv_dtype = kv_dtype,
                             .page_size = page_size,
                             .page_order = conformance::PageOrder::kShuffled,
                             .k_scale = 0.5f,
                             .window_left = page_size == 1 ? 100 : -1,
                             .split_rule = kernels::SplitRule::kBalanced,
                             .seed = cases.size() + 1});
  // Many KV tiles in sequence, several work tiles per CTA, and more CTAs than work tiles.
  for (const int num_workers : {1, 2, 9})
    cases.push_back({.requests = {{1, 1500}, {1, 40}, {1, 0}, {2, 333}, {1, 130}},
                     .num_q_heads = 16,
                     .num_kv_heads = 1,
                     .head_dim_qk = 576,
                     .head_dim_v = 512,
                     .rope_dim = 64,
                     .q_dtype = DType::kBF16,
                     .out_dtype = DType::kBF16,
                     .kv_dtype = DType::kF8E4M3,
                     .page_size = 16,
                     .page_order = conformance::PageOrder::kShuffled,
                     .split_rule = kernels::SplitRule::kBalanced,
                     .num_workers = num_workers,
                     .seed = cases.size() + 1});
  // Narrow latent rows.
  cases.push_back(cases[8]);
  cases.back().head_dim_qk = 96, cases.back().head_dim_v = 64, cases.back().rope_dim = 32;
  run_mla_conformance(mla_on_gpu, cases);
}

// Work tiles split between two CTAs, and among many; rows of 16 columns and of eight.
TEST_F(CudaMla, MergesAnyNumberOfPartialResults) {
  std::vector<AttentionCase> cases;
  for (const int num_workers : {2, 3, 4, 8, 10, 34})
    for (const int num_heads : {8, 128})
      for (const int head_dim_v : {512, 504})
        cases.push_back({.requests = {{1, 100}, {1, num_heads == 8 ? 1500 : 600}, {1, 40}},
                         .num_q_heads = num_heads,
                         .num_kv_heads = 1,
                         .head_dim_qk = head_dim_v + 64,
                         .head_dim_v = head_dim_v,
                         .rope_dim = 64,
                         .page_size = 64,
                         .spread = conformance::ScoreSpread::kSharp,
                         .split_rule = kernels::SplitRule::kBalanced,
                         .num_workers = num_workers,
                         .seed = cases.size() + 1});
  cases = on_tensor_cores(cases);
  for (AttentionCase& c : cases) c.kv_dtype = c.q_dtype;
  run_mla_conformance(mla_on_gpu, cases);
}

// Tiles of 16 and 64 rows, unsplit and split among CTAs.
TEST_F(CudaMla, ServesMlaLayersInAFewSmallCases) {
  std::vector<AttentionCase> cases;
  for (const int num_heads : {16, 40})
    for (const kernels::SplitRule rule : {kernels::SplitRule::kNone, kernels::SplitRule::kBalanced})
      cases.push_back({.requests = {{1, 70}, {2, 33}, {1, 1}},
                       .num_q_heads = num_heads,
                       .num_kv_heads = 1,
                       .head_dim_qk = 576,
                       .head_dim_v = 512,
                       .rope_dim = 64,
                       .page_size = 16,
                       .split_rule = rule});
  cases = on_tensor_cores(cases);
  for (AttentionCase& c : cases) c.kv_dtype = c.q_dtype;
  run_mla_conformance(mla_on_gpu, cases);
}

// Cases without special features use specialized instances unless TMA cannot copy their queries. The same
// request may use a specialized instance by itself and a general one in a batch: if the heads do not divide a
// work tile, gaps between tokens matter only in the batch.
TEST_F(CudaMla, HasTheSameBitsInSpecializedInstances) {
  for (const kernels::SplitRule rule : {kernels::SplitRule::kNone, kernels::SplitRule::kBalanced})
    for (const int num_heads : {5, 16, 128})
      for (const DType kv_dtype : {DType::kBF16, DType::kF8E4M3}) {
        const AttentionCase c{.requests = {{1, 700}, {2, 150}, {1, 64}},
                              .num_q_heads = num_heads,
                              .num_kv_heads = 1,
                              .head_dim_qk = 576,
                              .head_dim_v = 512,
                              .rope_dim = 64,
                              .q_dtype = DType::kBF16,
                              .out_dtype = DType::kBF16,
                              .kv_dtype = kv_dtype,
                              .page_size = 64,
                              .page_order = conformance::PageOrder::kShuffled,
                              .strided = num_heads == 5,
                              .split_rule = rule,
                              .seed = static_cast<uint64_t>(num_heads)};
        conformance::BuiltCase built(c);
        mla_on_gpu(built.mla_args, built);
        const auto results = built.result_bytes();
        const TensorView first = built.mla_args.out[0];
        std::vector<uint8_t> in_batch, single;
        const auto append_to = [&](std::vector<uint8_t>& bytes) {
          for (int64_t head = 0; head < num_heads; ++head) {
            const auto* row = static_cast<const uint8_t*>(first[head].data);
            bytes.insert(bytes.end(), row, row + first[head].num_bytes());
          }
        };
        append_to(in_batch);
        kernels::MlaArgs args = built.mla_args;
        args.attention_mask.window_left = 1 << 20;
        built.poison_results();
        mla_on_gpu(args, built);
        EXPECT_EQ(built.result_bytes(), results) << "with a window that hides nothing: " << c;
        if (rule != kernels::SplitRule::kNone) continue;
        args = built.mla_args;
        for (TensorView* tokens : {&args.q, &args.q_rope, &args.out, &args.lse})
          *tokens = tokens->slice(0, 0, 1);
        args.batch.cu_seqlen_q = args.batch.cu_seqlen_q.first(2);
        args.batch.seqlen_kv = args.batch.seqlen_kv.first(1);
        args.batch.max_seqlen_q = 1;
        built.poison_results();
        mla_on_gpu(args, built);
        append_to(single);
        EXPECT_EQ(single, in_batch) << "a single token: " << c;
      }
}

}  // namespace
}  // namespace attend::testing_cuda
