// Tests that the suite detects incorrect kernels: each mutant has one mistake that some case must detect.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "attend/kernels/common/element.h"
#include "tests/kernels/conformance/cases/cases.h"
#include "tests/kernels/conformance/merge_suite.h"
#include "tests/kernels/conformance/run.h"

namespace attend::conformance {
namespace {

using kernels::AttentionArgs;
using kernels::reference::load;
using kernels::reference::offset;
using kernels::reference::store;

// Runs the reference with changed arguments.
AttentionFn reference_after(const std::function<void(AttentionArgs&)>& change) {
  return [change](const AttentionArgs& args, const BuiltCase&) {
    AttentionArgs changed = args;
    change(changed);
    kernels::reference::attention(changed);
  };
}

// Runs the reference, then changes its results.
AttentionFn reference_before(const std::function<void(const AttentionArgs&)>& change) {
  return [change](const AttentionArgs& args, const BuiltCase&) {
    kernels::reference::attention(args);
    change(args);
  };
}

struct Mutant {
  const char* name;
  // Cases in which the mistake may be visible. The other cases are skipped.
  bool (*concerns)(const AttentionCase& c);
  AttentionFn kernel;
};

bool every_case(const AttentionCase&) { return true; }
// Mistakes that read more keys are tested with contiguous keys only, where every index is valid memory.
bool is_contiguous(const AttentionCase& c) { return c.index == kernels::KvIndexKind::kContiguous; }
bool has_window(const AttentionCase& c) { return c.window_left >= 0 && is_contiguous(c); }
bool has_window_right(const AttentionCase& c) { return c.window_right > 0 && is_contiguous(c); }
bool has_chunk(const AttentionCase& c) { return c.chunk > 0 && is_contiguous(c); }
bool is_bidirectional(const AttentionCase& c) { return !c.causal && is_contiguous(c); }
bool has_tree(const AttentionCase& c) { return c.tree == TreeShape::kTree && is_contiguous(c); }
bool has_cap(const AttentionCase& c) { return c.logit_cap > 0.0f; }
bool has_scales(const AttentionCase& c) { return c.k_scale != 1.0f && c.v_scale != 1.0f; }
bool has_sinks(const AttentionCase& c) { return c.sinks; }
bool has_padding(const AttentionCase& c) { return c.num_pad_tokens > 0; }
bool is_long(const AttentionCase& c) {
  return c.num_kv_tokens() > 1000 && c.window_left < 0 && c.chunk == 0 && c.tree == TreeShape::kNone;
}

void for_each_row(const AttentionArgs& args, const std::function<void(int64_t token, int64_t head)>& fn) {
  for (int64_t token = 0; token < args.batch.cu_seqlen_q.back(); ++token)
    for (int64_t head = 0; head < args.out.shape[1]; ++head) fn(token, head);
}

void scale_element(const TensorView& out, int64_t token, int64_t head, int64_t d, double factor) {
  const int64_t at = offset(out, token, head, d);
  store(out, at, load(out, at) * factor);
}

// `lengths` keeps the changed array alive while the reference runs.
void with_lengths(AttentionArgs& args, int32_t change, std::vector<int32_t>& lengths) {
  lengths.assign(args.batch.seqlen_kv.begin(), args.batch.seqlen_kv.end());
  for (int32_t& length : lengths)
    if (length > 900) length += change;
  args.batch.seqlen_kv = lengths;
}

std::vector<Mutant> mutants() {
  return {
      {"WindowOneKeyTooNarrow", has_window, reference_after([](AttentionArgs& a) {
         if (a.attention_mask.window_left > 0) --a.attention_mask.window_left;
       })},
      {"WindowOneKeyTooWide", has_window, reference_after([](AttentionArgs& a) {
         if (a.attention_mask.window_left >= 0) ++a.attention_mask.window_left;
       })},
      {"WindowIgnored", has_window,
       reference_after([](AttentionArgs& a) { a.attention_mask.window_left = -1; })},
      {"WindowRightOneKeyTooNarrow", [](const AttentionCase& c) { return c.window_right > 0; },
       reference_after(
           [](AttentionArgs& a) { a.attention_mask.window_right -= a.attention_mask.window_right > 0; })},
      {"WindowRightOneKeyTooWide", has_window_right, reference_after([](AttentionArgs& a) {
         a.attention_mask.window_right += a.attention_mask.window_right < 1000;
       })},
      {"WindowRightIgnored", has_window_right,
       reference_after([](AttentionArgs& a) { a.attention_mask.window_right = 0; })},
      {"ChunkIgnored", has_chunk, reference_after([](AttentionArgs& a) { a.attention_mask.chunk = 0; })},
      {"ChunkOneTooShort", has_chunk, reference_after([](AttentionArgs& a) {
         if (a.attention_mask.chunk > 1) --a.attention_mask.chunk;
       })},
      {"CausalThoughBidirectional", is_bidirectional,
       reference_after([](AttentionArgs& a) { a.attention_mask.causal = true; })},
      {"TreeMaskIgnored", has_tree, reference_after([](AttentionArgs& a) { a.batch.tree_mask = {}; })},
      {"OneKeyOfAThousandForgotten", is_long,
       [](const AttentionArgs& args, const BuiltCase&) {
         AttentionArgs changed = args;
         std::vector<int32_t> lengths;
         with_lengths(changed, -1, lengths);
         kernels::reference::attention(changed);
       }},
      {"CapIgnored", has_cap, reference_after([](AttentionArgs& a) { a.score.logit_cap = 0.0f; })},
      {"KScaleOutsideTheCap", has_cap,
       reference_after([](AttentionArgs& a) { a.score.logit_cap *= a.kv.k_scale; })},
      {"VScaleIgnored", has_scales, reference_after([](AttentionArgs& a) { a.kv.v_scale = 1.0f; })},
      {"SinkIgnored", has_sinks, reference_after([](AttentionArgs& a) { a.score.sinks = {}; })},
      {"SinkInTheLse", has_sinks, reference_before([](const AttentionArgs& a) {
         if (a.score.sinks.empty() || a.lse.empty()) return;
         for_each_row(a, [&](int64_t token, int64_t head) {
           const int64_t at = offset(a.lse, token, head);
           const auto sink = static_cast<double>(a.score.sinks[static_cast<size_t>(head)]);
           store(a.lse, at, std::log(std::exp(load(a.lse, at)) + std::exp(sink)));
         });
       })},
      {"LseInBaseTwo", every_case, reference_before([](const AttentionArgs& a) {
         if (a.lse.empty()) return;
         for_each_row(a, [&](int64_t token, int64_t head) {
           const int64_t at = offset(a.lse, token, head);
           store(a.lse, at, load(a.lse, at) / std::log(2.0));
         });
       })},
      {"KvHeadsInReverse", every_case, reference_after([](AttentionArgs& a) {
         TensorView& k = a.kv.k;
         k.data = k.slice(2, k.shape[2] - 1, k.shape[2]).data;
         k.strides[2] = -k.strides[2];
       })},
      {"PaddingNotWritten", has_padding, reference_after([](AttentionArgs& a) {
         const int64_t num_tokens = a.batch.cu_seqlen_q.back();
         a.q = a.q.slice(0, 0, num_tokens);
         a.out = a.out.slice(0, 0, num_tokens);
         if (!a.lse.empty()) a.lse = a.lse.slice(0, 0, num_tokens);
       })},
      {"PaddingRequestsForgotten", every_case, reference_after([](AttentionArgs& a) {
         const size_t last = a.batch.seqlen_kv.size() - (a.batch.seqlen_kv.empty() ? 0 : 1);
         a.batch.seqlen_kv = a.batch.seqlen_kv.first(last);
         a.batch.cu_seqlen_q = a.batch.cu_seqlen_q.first(last + 1);
       })},
      {"LastElementOfARowOff", every_case, reference_before([](const AttentionArgs& a) {
         for_each_row(a, [&](int64_t token, int64_t head) {
           scale_element(a.out, token, head, a.out.shape[2] - 1, 1.5);
         });
       })},
      {"Float32QueriesRoundedToHalf", every_case,
       [](const AttentionArgs& args, const BuiltCase&) {
         AttentionArgs changed = args;
         const TensorView& q = args.q;
         const Tensor rounded = Tensor::empty({q.shape[0], q.shape[1], q.shape[2]}, DType::kF16);
         for_each_row(args, [&](int64_t token, int64_t head) {
           for (int64_t d = 0; d < q.shape[2]; ++d)
             store(rounded, offset(rounded.view(), token, head, d), load(q, offset(q, token, head, d)));
         });
         changed.q = rounded;
         kernels::reference::attention(changed);
       }},
      {"ResultsTwiceTheirRoundingOff", every_case, reference_before([](const AttentionArgs& a) {
         const double off = a.out.dtype == DType::kF32 ? 3e-4 : a.out.dtype == DType::kF16 ? 4e-3 : 3e-2;
         for_each_row(a, [&](int64_t token, int64_t head) {
           for (int64_t d = 0; d < a.out.shape[2]; ++d)
             scale_element(a.out, token, head, d, d % 2 ? 1 + off : 1 - off);
         });
       })},
      {"WritesBesideTheResults", every_case, reference_before([](const AttentionArgs& a) {
         if (a.out.strides[1] > a.out.shape[2] && a.out.shape[0] > 0) store(a.out, a.out.shape[2], 0.0);
       })},
      {"ReadsBeyondTheLastKey", every_case,
       [](const AttentionArgs& args, const BuiltCase&) {
         AttentionArgs changed = args;
         std::vector<int32_t> lengths(args.batch.seqlen_kv.begin(), args.batch.seqlen_kv.end());
         for (int32_t& length : lengths)
           if (length % args.kv.index.page_size != 0) ++length;  // stays inside the page
         changed.batch.seqlen_kv = lengths;
         kernels::reference::attention(changed);
       }},
      {"OtherBitsTheSecondTime", every_case,
       [calls = 0](const AttentionArgs& args, const BuiltCase&) mutable {
         kernels::reference::attention(args);
         if (++calls % 2 == 0)
           for_each_row(args, [&](int64_t token, int64_t head) {
             scale_element(args.out, token, head, 0, 1.0 + (args.out.dtype == DType::kF32 ? 1e-6 : 4e-3));
           });
       }},
      {"Throws", every_case,
       [](const AttentionArgs&, const BuiltCase&) { fail(ErrorCode::kUnsupported, "not today"); }},
  };
}

class ConformanceSuite : public ::testing::TestWithParam<Mutant> {};

TEST_P(ConformanceSuite, Catches) {
  for (const AttentionCase& c : conformance_cases())
    if (GetParam().concerns(c) && !conformance_problem(GetParam().kernel, c).empty()) return;
  FAIL() << "no case found the mistake";
}

INSTANTIATE_TEST_SUITE_P(Mutants, ConformanceSuite, ::testing::ValuesIn(mutants()),
                         [](const auto& mutant) { return std::string(mutant.param.name); });

TEST(ConformanceProblems, NamesTheRowAndTheErrorOfAFailingCase) {
  const AttentionCase c{.requests = {{2, 5}}};
  const std::string problem = conformance_problem(
      AttentionFn(reference_before([](const AttentionArgs& a) { scale_element(a.out, 1, 3, 0, 100.0); })), c);
  EXPECT_NE(problem.find("1 rows out of bounds, the worst out of token 1, head 3"), std::string::npos)
      << problem;
}

TEST(ConformanceProblems, CatchesResultsThatDependOnThePage) {
  const AttentionFn kernel = [](const AttentionArgs& args, const BuiltCase& built) {
    kernels::reference::attention(args);
    if (built.index.pages[0].size() > 1 && built.index.pages[0][0] > built.index.pages[0][1])
      scale_element(args.out, 0, 0, 0, 1.01);
  };
  const AttentionCase c{.requests = {{2, 40}}, .page_size = 4, .seed = 3};
  EXPECT_EQ(conformance_problem(AttentionFn(reference_after([](AttentionArgs&) {})), c), "");
  EXPECT_NE(page_order_problem(kernel, c), "");
}

TEST(ConformanceProblems, CatchesTokensThatDependOnTheirBatch) {
  const AttentionCase c{.requests = {{4, 40}, {1, 9}}, .split_rule = kernels::SplitRule::kFixed};
  const AttentionFn by_requests = [](const AttentionArgs& args, const BuiltCase&) {
    kernels::reference::attention(args);
    if (args.batch.num_reqs() > 1) scale_element(args.out, 0, 0, 0, 1.01);
  };
  const AttentionFn by_step = [](const AttentionArgs& args, const BuiltCase&) {
    kernels::reference::attention(args);
    if (args.batch.max_seqlen_q == 1) scale_element(args.out, 0, 0, 0, 1.01);
  };
  const AttentionFn by_workers = [](const AttentionArgs& args, const BuiltCase& built) {
    kernels::reference::attention(args);
    if (built.spec.num_workers == 1) scale_element(args.out, 0, 0, 0, 1.01);
  };
  EXPECT_NE(batch_invariance_problem(by_requests, c), "");
  EXPECT_NE(batch_invariance_problem(by_step, c), "");
  EXPECT_NE(batch_invariance_problem(by_workers, c), "");
}

}  // namespace
}  // namespace attend::conformance
