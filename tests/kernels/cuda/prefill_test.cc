// Attention of many rows on GPUs of compute capability 9.0 (kernels/cuda/sm90/prefill_*).
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "attend/base/error.h"
#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_shape.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "tests/kernels/conformance/cases/cases.h"
#include "tests/kernels/conformance/run.h"
#include "tests/kernels/cuda/support/device_case.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/cuda/support/needs_gpu.h"

namespace attend::testing_cuda {
namespace {

using conformance::AttentionCase;
using conformance::in_e4m3;
using conformance::on_tensor_cores;

// Returns true if the prefill kernel is chosen for arguments on the device.
bool is_prefill(const kernels::AttentionArgs& args, const kernels::cuda::DevicePlan& plan) {
  return choose(attention_problem(args, plan), kernels::cuda::gpu_facts(kGpu)).row.kernel ==
         kernels::cuda::AttentionKernel::kSm90Prefill;
}

void prefill_on_gpu(const kernels::AttentionArgs& args, const conformance::BuiltCase& built) {
  attention_on_gpu_if(is_prefill, args, built);
}

// Tuning of the GPU with candidates enabled that are off until they have been measured on a GPU.
kernels::cuda::AttentionTuning all_rows_on() {
  kernels::cuda::AttentionTuning tuning = kernels::cuda::attention_tuning(kernels::cuda::gpu_facts(kGpu));
  tuning.prefills_e4m3 = tuning.prefills_96 = true;
  return tuning;
}
bool is_row(std::string_view name, const kernels::AttentionArgs& args,
            const kernels::cuda::DevicePlan& plan) {
  return choose(attention_problem(args, plan), kernels::cuda::gpu_facts(kGpu), all_rows_on())
      .row.name.starts_with(name);
}
bool is_e4m3_prefill(const kernels::AttentionArgs& args, const kernels::cuda::DevicePlan& plan) {
  return is_row("sm90 prefill e4m3", args, plan);
}
void run_with_all_rows(const kernels::AttentionArgs& args, kernels::AttentionPlan& plan, Stream& stream) {
  kernels::check(args);
  kernels::cuda::attention(args, plan.device_plan(), stream, all_rows_on());
}
void e4m3_prefill_on_gpu(const kernels::AttentionArgs& args, const conformance::BuiltCase& built) {
  attention_on_gpu_if(is_e4m3_prefill, args, built, Planning::kBefore, run_with_all_rows);
}
void prefill_96_on_gpu(const kernels::AttentionArgs& args, const conformance::BuiltCase& built) {
  const auto is_right = [](const auto& on_device, const auto& plan) {
    return is_row("sm90 prefill 96/96", on_device, plan);
  };
  attention_on_gpu_if(is_right, args, built, Planning::kBefore, run_with_all_rows);
}

// Adds new tokens until each request fills more than half a work tile, on one to three CTAs that process many
// work tiles each. `cases` have dtypes that prefill supports. Two thirds of the cases with fp8 K/V have
// descales per head.
std::vector<AttentionCase> with_many_rows(std::vector<AttentionCase> cases) {
  size_t i = 0;
  for (AttentionCase& c : cases) {
    const int more = 70 / (c.num_q_heads / c.num_kv_heads) + 1;
    if (c.requests.empty()) c.requests.push_back({});
    for (conformance::Lengths& lengths : c.requests) {
      lengths.seqlen_q += more;
      lengths.seqlen_kv += more;
    }
    const int largest_head_dim = is_fp8(c.kv_dtype) ? 128 : 256;
    c.head_dim_qk = std::min(c.head_dim_qk, is_fp8(c.q_dtype) ? 192 : largest_head_dim);
    c.head_dim_v = std::min(c.head_dim_v, largest_head_dim);
    if (c.split_rule == kernels::SplitRule::kFixed) c.split_rule = kernels::SplitRule::kBalanced;
    c.tree = conformance::TreeShape::kNone;
    c.head_scales |= is_fp8(c.kv_dtype) && !is_fp8(c.q_dtype) && i / 3 % 3 != 1;
    // At most one CTA per work tile.
    c.num_workers =
        std::min(static_cast<int>(i / 3 % 3) + 1, static_cast<int>(c.requests.size()) * c.num_kv_heads);
    ++i;
  }
  return cases;
}

// Like with_many_rows(), with more CTAs than work tiles, so that CTAs divide the keys of a work tile. Every
// fourth case has many more keys.
std::vector<AttentionCase> with_divided_keys(std::vector<AttentionCase> cases) {
  cases = with_many_rows(std::move(cases));
  size_t i = 0;
  for (AttentionCase& c : cases) {
    const int group = c.num_q_heads / c.num_kv_heads;
    c.head_dim_qk = std::min(c.head_dim_qk, is_fp8(c.kv_dtype) && !is_fp8(c.q_dtype) ? 128 : 192);
    c.head_dim_v = std::min(c.head_dim_v, 128);
    c.split_rule = kernels::SplitRule::kBalanced;
    int num_work_tiles = 0;
    for (conformance::Lengths& lengths : c.requests) {
      if (i % 4 == 0) lengths.seqlen_kv += 900;
      num_work_tiles += (lengths.seqlen_q * group / 128 + 1) * c.num_kv_heads;
    }
    num_work_tiles += c.num_pad_reqs * c.num_kv_heads;
    c.num_workers = static_cast<int>(num_work_tiles * (1 + i % 3) + 2 + i % 5);
    // The plan counts row tiles by upper bounds.
    c.num_workers += (c.max_seqlen_q() * group / 128 + 2) * c.num_reqs() * c.num_kv_heads;
    ++i;
  }
  return cases;
}

bool divides_keys(const kernels::AttentionArgs& args, const kernels::cuda::DevicePlan& plan) {
  return is_prefill(args, plan) && kernels::cuda::divides_keys(plan.view());
}
void prefill_of_divided_keys(const kernels::AttentionArgs& args, const conformance::BuiltCase& built) {
  attention_on_gpu_if(divides_keys, args, built);
}
void e4m3_prefill_of_divided_keys(const kernels::AttentionArgs& args, const conformance::BuiltCase& built) {
  const auto divides = [](const auto& on_device, const kernels::cuda::DevicePlan& plan) {
    return is_e4m3_prefill(on_device, plan) && kernels::cuda::divides_keys(plan.view());
  };
  attention_on_gpu_if(divides, args, built, Planning::kBefore, run_with_all_rows);
}

class CudaPrefillPart : public NeedsHopper, public testing::WithParamInterface<int> {
 protected:
  static std::vector<AttentionCase> part(std::vector<AttentionCase> cases) {
    return select_part(cases, GetParam());
  }
};

TEST_P(CudaPrefillPart, ConformsToTheReference) {
  run_conformance(prefill_on_gpu, part(with_many_rows(on_tensor_cores(conformance::conformance_cases()))));
}
TEST_P(CudaPrefillPart, ConformsIfCtasDivideKeys) {
  run_conformance(prefill_of_divided_keys,
                  part(with_divided_keys(on_tensor_cores(conformance::conformance_cases()))));
}
TEST_P(CudaPrefillPart, DoesNotDependOnTheOrderOfPages) {
  run_page_order(prefill_on_gpu, part(with_many_rows(on_tensor_cores(conformance::page_order_cases()))));
}
TEST_P(CudaPrefillPart, ConformsInE4m3) {
  run_conformance(e4m3_prefill_on_gpu, part(with_many_rows(in_e4m3(conformance::conformance_cases()))));
}
TEST_P(CudaPrefillPart, ConformsInE4m3IfCtasDivideKeys) {
  run_conformance(e4m3_prefill_of_divided_keys,
                  part(with_divided_keys(in_e4m3(conformance::conformance_cases()))));
}
TEST_P(CudaPrefillPart, DoesNotDependOnTheOrderOfPagesInE4m3) {
  run_page_order(e4m3_prefill_on_gpu, part(with_many_rows(in_e4m3(conformance::page_order_cases()))));
}
INSTANTIATE_TEST_SUITE_P(Every, CudaPrefillPart, testing::Range(0, kParts));

// Head dims of every instance, some narrower than the instance.
struct Heads {
  int dim_qk, dim_v;
  DType kv_dtype;
  DType q_dtype() const { return is_fp8(kv_dtype) ? DType::kBF16 : kv_dtype; }
};
constexpr Heads kHeads[] = {{64, 64, DType::kBF16},     {128, 128, DType::kF16},  {192, 128, DType::kBF16},
                            {80, 72, DType::kF16},      {256, 256, DType::kBF16}, {256, 136, DType::kF16},
                            {128, 128, DType::kF8E4M3}, {64, 64, DType::kF8E5M2}, {96, 80, DType::kF8E4M3},
                            {256, 128, DType::kBF16}};

// Keys that end and start anywhere in a tile, for every way to copy them.
class CudaPrefillPages : public NeedsHopper, public testing::WithParamInterface<int> {};

std::vector<AttentionCase> with_ends_anywhere(std::span<const Heads> all_heads, int page_size) {
  std::vector<AttentionCase> cases;
  for (const Heads& heads : all_heads) {
    const int head_dim_qk = heads.dim_qk;
    AttentionCase c{.num_q_heads = 4,
                    .num_kv_heads = 2,
                    .head_dim_qk = head_dim_qk,
                    .head_dim_v = heads.dim_v,
                    .page_size = page_size,
                    .page_order = conformance::PageOrder::kShuffled,
                    .num_workers = 2,
                    .seed = cases.size()};
    for (const int seqlen_kv : {65, 95, 96, 97, 127, 128, 129, 191, 193, 255, 256, 257, 384})
      c.requests.push_back({40, seqlen_kv});
    if (page_size == 2) c.logit_cap = 20.0f;
    if (page_size == 16) c.window_left = 70;
    if (page_size == 64) c.index = kernels::KvIndexKind::kPageTable;
    if (page_size == 1 && head_dim_qk == 128) c.index = kernels::KvIndexKind::kContiguous;
    if (head_dim_qk == 80) c.causal = false;
    c.kv_dtype = heads.kv_dtype;
    c.q_dtype = c.out_dtype = heads.q_dtype();
    cases.push_back(c);
  }
  return cases;
}

constexpr Heads kHeadsInE4m3[] = {{64, 64, DType::kF8E4M3},
                                  {128, 128, DType::kF8E4M3},
                                  {192, 128, DType::kF8E4M3},
                                  {80, 48, DType::kF8E4M3}};

TEST_P(CudaPrefillPages, ConformsForKeysThatEndAnywhereInATile) {
  run_conformance(prefill_on_gpu, with_ends_anywhere(kHeads, GetParam()));
}
constexpr Heads kHeadsUpTo96[] = {{96, 96, DType::kBF16}, {80, 72, DType::kF16}, {96, 64, DType::kF16}};

TEST_P(CudaPrefillPages, ConformsInHeadDimsUpTo96ForKeysThatEndAnywhereInATile) {
  run_conformance(prefill_96_on_gpu, with_ends_anywhere(kHeadsUpTo96, GetParam()));
}
TEST_P(CudaPrefillPages, ConformsInE4m3ForKeysThatEndAnywhereInATile) {
  run_conformance(e4m3_prefill_on_gpu, in_e4m3(with_ends_anywhere(kHeadsInE4m3, GetParam())));
}
INSTANTIATE_TEST_SUITE_P(EachSize, CudaPrefillPages, testing::Values(1, 2, 4, 8, 16, 32, 64, 128, 256));

using CudaPrefill = NeedsHopper;

// Few small cases of every instance, dtype and way to copy keys, with all features of layers.
std::vector<AttentionCase> few_small_cases(std::span<const Heads> all_heads) {
  std::vector<AttentionCase> cases;
  for (const auto& [head_dim_qk, head_dim_v, kv_dtype] : all_heads)
    for (const int page_size : {1, 16, 64}) {
      AttentionCase c{.requests = {{36, 70}, {40, 140}},
                      .num_q_heads = 2,
                      .num_kv_heads = 1,
                      .head_dim_qk = head_dim_qk,
                      .head_dim_v = head_dim_v,
                      .page_size = page_size,
                      .page_order = conformance::PageOrder::kShuffled,
                      .num_workers = 1,
                      .seed = static_cast<uint32_t>(cases.size())};
      switch (cases.size() % 5) {
        case 0:
          c.window_left = 50;
          break;
        case 1:
          c.causal = false;
          break;
        case 2:
          c.logit_cap = 20.0f;
          break;
        case 3:
          c.sinks = true;
          c.window_left = 30, c.window_right = 25;
          break;
        default:
          c.index = kernels::KvIndexKind::kPageTable;
      }
      c.kv_dtype = kv_dtype;
      c.q_dtype = is_fp8(kv_dtype) ? (cases.size() % 2 == 0 ? DType::kBF16 : DType::kF16) : kv_dtype;
      c.out_dtype = page_size == 64 ? DType::kF32 : c.q_dtype;
      cases.push_back(c);
    }
  return cases;
}
TEST_F(CudaPrefill, ConformsInAFewSmallCases) { run_conformance(prefill_on_gpu, few_small_cases(kHeads)); }
TEST_F(CudaPrefill, ConformsInAFewSmallCasesOfHeadDimsUpTo96) {
  run_conformance(prefill_96_on_gpu, few_small_cases(kHeadsUpTo96));
}
TEST_F(CudaPrefill, ConformsInAFewSmallCasesOfE4m3) {
  run_conformance(e4m3_prefill_on_gpu, in_e4m3(few_small_cases(kHeadsInE4m3)));
}

// Maximum scores that rise strongly from tile to tile, over many tiles.
std::vector<AttentionCase> with_rising_scores() {
  AttentionCase c{.requests = {{100, 1500}, {300, 300}, {65, 1000}},
                  .num_q_heads = 4,
                  .num_kv_heads = 2,
                  .head_dim_qk = 128,
                  .head_dim_v = 128,
                  .q_dtype = DType::kBF16,
                  .out_dtype = DType::kBF16,
                  .kv_dtype = DType::kBF16,
                  .page_size = 16,
                  .spread = conformance::ScoreSpread::kSharp,
                  .num_workers = 3};
  std::vector<AttentionCase> cases(8, c);
  cases[1].window_left = 100;
  cases[2].causal = false;
  cases[3].chunk = 96;
  cases[3].logit_cap = 50.0f;
  cases[4].head_dim_qk = cases[4].head_dim_v = 256;
  cases[5].kv_dtype = DType::kF8E4M3;
  cases[6].window_left = 40, cases[6].window_right = 300;
  cases[7].chunk = 96, cases[7].window_right = 1000;
  // The same cases with keys copied row by row, with and without a cap, and in pages of several rows.
  for (const size_t i : {0, 2, 3, 4}) {
    cases.push_back(cases[i]);
    cases.back().page_size = i == 2 ? 4 : 1;
  }
  for (size_t i = 0; i < cases.size(); ++i) cases[i].seed = i + 1;
  return cases;
}
TEST_F(CudaPrefill, ConformsIfScoresRiseFromTileToTile) {
  run_conformance(prefill_on_gpu, with_rising_scores());
}
TEST_F(CudaPrefill, ConformsInE4m3IfScoresRiseFromTileToTile) {
  std::vector<AttentionCase> cases = with_rising_scores();
  for (AttentionCase& c : cases)
    if (c.head_dim_qk > 192) c.head_dim_qk = 192, c.head_dim_v = 128;
  run_conformance(e4m3_prefill_on_gpu, in_e4m3(std::move(cases)));
}

// Enough keys to detect truncated sums of tensor cores.
TEST_F(CudaPrefill, ConformsInE4m3OverManyKeys) {
  std::vector<AttentionCase> cases;
  for (const auto spread : {conformance::ScoreSpread::kOrdinary, conformance::ScoreSpread::kFlat})
    cases.push_back({.requests = {{70, 16384}},
                     .num_q_heads = 2,
                     .num_kv_heads = 1,
                     .head_dim_qk = 128,
                     .head_dim_v = 128,
                     .page_size = 16,
                     .spread = spread,
                     .num_workers = 1,
                     .seed = cases.size() + 1});
  run_conformance(e4m3_prefill_on_gpu, in_e4m3(std::move(cases)));
}

AttentionCase make_many_work_tiles(int head_dim_qk, int head_dim_v, int page_size) {
  return {.requests = {{400, 1111}, {700, 700}},
          .num_q_heads = 16,
          .num_kv_heads = 8,
          .head_dim_qk = head_dim_qk,
          .head_dim_v = head_dim_v,
          .q_dtype = DType::kBF16,
          .out_dtype = DType::kBF16,
          .kv_dtype = DType::kBF16,
          .page_size = page_size,
          .page_order = conformance::PageOrder::kShuffled,
          .num_workers = 20};
}
void expect_same_bits_thirty_times(const conformance::AttentionFn& kernel, const AttentionCase& c) {
  conformance::BuiltCase built(c);
  kernel(built.args, built);
  const auto first = built.result_bytes();
  for (int i = 0; i < 30; ++i) {
    built.poison_results();
    kernel(built.args, built);
    ASSERT_EQ(built.result_bytes(), first) << "repeat " << i;
  }
}
TEST_F(CudaPrefill, ProducesTheSameBitsThirtyTimesInE4m3) {
  expect_same_bits_thirty_times(e4m3_prefill_on_gpu, in_e4m3({make_many_work_tiles(128, 128, 16)}).front());
}
TEST_F(CudaPrefill, ProducesTheSameBitsThirtyTimesRowByRow) {
  for (const auto& [dim_qk, dim_v] : {std::pair{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}}) {
    SCOPED_TRACE(dim_qk);
    expect_same_bits_thirty_times(dim_qk == 96 ? prefill_96_on_gpu : prefill_on_gpu,
                                  make_many_work_tiles(dim_qk, dim_v, dim_qk == 192 ? 4 : 1));
  }
}

// A few new tokens after a long prefix. The keys of the prefix are divided among all CTAs.
TEST_F(CudaPrefill, DividesTheKeysOfALongPrefix) {
  std::vector<AttentionCase> cases;
  for (const int num_workers : {2, 7, 60})
    for (const DType kv_dtype : {DType::kBF16, DType::kF8E4M3})
      cases.push_back({.requests = {{70, 1500}, {33, 777}},
                       .num_q_heads = 4,
                       .num_kv_heads = num_workers == 2 ? 1 : 2,
                       .head_dim_qk = 128,
                       .head_dim_v = 128,
                       .q_dtype = DType::kBF16,
                       .out_dtype = num_workers == 7 ? DType::kF32 : DType::kBF16,
                       .kv_dtype = kv_dtype,
                       .page_size = 16,
                       .page_order = conformance::PageOrder::kShuffled,
                       .spread = conformance::ScoreSpread::kSharp,
                       .split_rule = kernels::SplitRule::kBalanced,
                       .num_workers = num_workers,
                       .seed = cases.size() + 1});
  // Covers more and fewer work tiles than CTAs; the plan decides whether CTAs divide keys.
  run_conformance(prefill_on_gpu, cases);
}

// If the work tiles of a request nearly fill the CTAs, CTAs process whole work tiles. With fewer work tiles
// CTAs divide the keys, and all CTAs get a part where slightly fewer heads per round make that possible.
TEST_F(CudaPrefill, LeavesWorkTilesOfOneRequestWhole) {
  const auto make_case = [](const conformance::Lengths& lengths, int num_workers) {
    return AttentionCase{.requests = {lengths},
                         .num_q_heads = 16,
                         .num_kv_heads = 8,
                         .head_dim_qk = 128,
                         .head_dim_v = 128,
                         .q_dtype = DType::kBF16,
                         .out_dtype = DType::kBF16,
                         .kv_dtype = DType::kBF16,
                         .page_size = 16,
                         .page_order = conformance::PageOrder::kShuffled,
                         .split_rule = kernels::SplitRule::kBalanced,
                         .num_workers = num_workers};
  };
  const auto leaves_whole = [](const kernels::AttentionArgs& args, const kernels::cuda::DevicePlan& plan) {
    return is_prefill(args, plan) && !plan.view().streamed;
  };
  const auto divides_for_all = [](const kernels::AttentionArgs& args, const kernels::cuda::DevicePlan& plan) {
    return divides_keys(args, plan) && plan.view().num_ctas % plan.view().heads_per_round == 0;
  };
  const auto on_gpu_if = [](auto condition) {
    return [condition](const kernels::AttentionArgs& args, const conformance::BuiltCase& built) {
      attention_on_gpu_if(condition, args, built);
    };
  };
  // 5 row tiles of 8 heads.
  run_conformance(on_gpu_if(leaves_whole), std::vector{make_case({300, 900}, 44), make_case({300, 300}, 41)});
  run_conformance(on_gpu_if(divides_for_all),
                  std::vector{make_case({300, 900}, 52), make_case({70, 700}, 36)});
}

// Cases with 17 to 64 rows per request and keys that are divided among CTAs.
std::vector<AttentionCase> for_verify() {
  std::vector<AttentionCase> cases = on_tensor_cores(conformance::conformance_cases());
  size_t i = 0;
  for (AttentionCase& c : cases) {
    const int group = c.num_q_heads / c.num_kv_heads, fewest = 16 / group + 1,
              most = std::max(64 / group, fewest);
    if (c.requests.empty()) c.requests.push_back({});
    for (conformance::Lengths& lengths : c.requests) {
      const int more = std::clamp(lengths.seqlen_q, fewest, most) - lengths.seqlen_q;
      lengths.seqlen_q += more;
      lengths.seqlen_kv = std::max(lengths.seqlen_kv + more, 0);
    }
    c.max_seqlen_q_slack = 0;
    c.split_rule = kernels::SplitRule::kBalanced;
    c.tree = conformance::TreeShape::kNone;
    c.head_dim_qk = std::min(c.head_dim_qk, 192);
    c.head_dim_v = std::min(c.head_dim_v, 128);
    c.kv_dtype = c.q_dtype;
    // 2 to 8 CTAs per request and KV head, more than there are work tiles.
    c.num_workers = c.num_reqs() * c.num_kv_heads * static_cast<int>(2 + i % 7);
    ++i;
  }
  std::erase_if(
      cases, [](const AttentionCase& c) { return c.max_seqlen_q() * (c.num_q_heads / c.num_kv_heads) > 64; });
  return cases;
}
TEST_P(CudaPrefillPart, ConformsForVerify) { run_conformance(prefill_of_divided_keys, part(for_verify())); }
TEST_P(CudaPrefillPart, VerifiesWithAnInlinePlan) {
  const auto verify = [](const kernels::AttentionArgs& args, const conformance::BuiltCase& built) {
    attention_planned_inline_if(divides_keys, args, built);
  };
  run_conformance(verify, part(for_verify()));
}

TEST_P(CudaPrefillPart, VerifiesWithoutBarrierWaits) {
  const auto verify = [](const kernels::AttentionArgs& args, const conformance::BuiltCase& built) {
    attention_without_waiting_if(divides_keys, args, built);
  };
  run_conformance(verify, part(for_verify()));
}
// Fewer CTAs than work tiles; CTA ranges are aligned with work tiles or not. Requests of equal lengths, and
// of different ones.
TEST_F(CudaPrefill, VerifiesMoreWorkTilesThanCtas) {
  std::vector<AttentionCase> cases;
  for (const int num_workers : {1, 3, 5})
    for (const bool equal_lengths : {false, true}) {
      AttentionCase c{.num_q_heads = 16,
                      .num_kv_heads = 2,
                      .head_dim_qk = 128,
                      .head_dim_v = 128,
                      .page_size = 16,
                      .page_order = conformance::PageOrder::kShuffled,
                      .split_rule = kernels::SplitRule::kBalanced,
                      .num_workers = num_workers,
                      .seed = cases.size()};
      for (int r = 0; r < 9; ++r)
        c.requests.push_back({equal_lengths ? 8 : 5 + r % 4, equal_lengths ? 700 : 20 + 170 * r});
      cases.push_back(c);
    }
  cases = on_tensor_cores(cases);
  // fp8 keys have other tile sizes.
  for (AttentionCase& c : cases) c.kv_dtype = c.q_dtype;
  run_conformance(prefill_of_divided_keys, cases);
}

TEST_F(CudaPrefill, WritesZerosWithoutKeys) {
  AttentionCase c{.requests = {{100, 0}, {300, 0}},
                  .num_q_heads = 4,
                  .num_kv_heads = 2,
                  .head_dim_qk = 128,
                  .head_dim_v = 128,
                  .num_workers = 2};
  c.index = kernels::KvIndexKind::kContiguous;
  c.causal = false;
  c.q_dtype = c.kv_dtype = c.out_dtype = DType::kBF16;
  AttentionCase fp8 = c;
  fp8.kv_dtype = DType::kF8E4M3;
  run_conformance(prefill_on_gpu, std::vector{c, fp8});
}

// Work tiles with rows before the first key, one or several in sequence, between other work tiles.
TEST_F(CudaPrefill, SupportsWorkTilesWithoutKeysBetweenOthers) {
  std::vector<AttentionCase> cases;
  for (const DType kv_dtype : {DType::kBF16, DType::kF8E4M3, DType::kF8E5M2})
    for (const int head_dim : {64, 128})
      for (const int page_size : {1, 16}) {
        AttentionCase c{.requests = {{300, 60}, {100, 700}, {200, 0}, {70, 90}, {90, 5}},
                        .num_q_heads = 4,
                        .num_kv_heads = 2,
                        .head_dim_qk = head_dim,
                        .head_dim_v = head_dim,
                        .page_size = page_size,
                        .num_workers = 2,
                        .seed = cases.size()};
        c.q_dtype = c.out_dtype = head_dim == 64 && page_size == 1 ? DType::kF16 : DType::kBF16;
        c.kv_dtype = is_fp8(kv_dtype) ? kv_dtype : c.q_dtype;
        cases.push_back(c);
      }
  run_conformance(prefill_on_gpu, cases);
}

}  // namespace
}  // namespace attend::testing_cuda
