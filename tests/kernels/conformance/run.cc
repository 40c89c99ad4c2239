#include "tests/kernels/conformance/run.h"

#include <gtest/gtest.h>

#include <cstring>
#include <exception>
#include <string>

#include "tests/kernels/conformance/tolerance.h"

namespace attend::conformance {
namespace {

template <class Kernel, class Args>
std::string conforms(const Kernel& kernel, BuiltCase& built, const Args& args) {
  const Expected expected = expect(args);
  kernel(args, built);
  if (const auto problem = mismatch(expected, args.out, args.lse)) return *problem;
  if (!built.gaps_untouched()) return "wrote between or around the results";
  const auto first = built.result_bytes();
  built.poison_results();
  kernel(args, built);
  return built.result_bytes() == first ? "" : "a second call gave other bits";
}

std::vector<unsigned char> result_of_run(const AttentionFn& kernel, const AttentionCase& c) {
  BuiltCase built(c);
  kernel(built.args, built);
  return built.result_bytes();
}

// The queries [j_begin, j_end) of one request as a separate step with its own results.
class PartialStep {
 public:
  PartialStep(const kernels::AttentionArgs& whole, int request, int32_t j_begin, int32_t j_end)
      : first_token_(whole.batch.cu_seqlen_q[static_cast<size_t>(request)] + j_begin),
        cu_seqlen_q_{0, j_end - j_begin},
        args_(whole) {
    const auto r = static_cast<size_t>(request);
    const int32_t seqlen_q = whole.batch.cu_seqlen_q[r + 1] - whole.batch.cu_seqlen_q[r];
    seqlen_kv_ = {whole.batch.seqlen_kv[r] - (seqlen_q - j_end)};
    out_ = Tensor::empty({j_end - j_begin, whole.out.shape[1], whole.out.shape[2]}, whole.out.dtype);
    args_.q = whole.q.slice(0, first_token_, first_token_ + j_end - j_begin);
    args_.out = out_;
    args_.lse = {};
    args_.batch.cu_seqlen_q = cu_seqlen_q_;
    args_.batch.seqlen_kv = seqlen_kv_;
    args_.batch.max_seqlen_q = j_end - j_begin;
    kernels::KvIndex& index = args_.kv.index;
    if (index.kind == kernels::KvIndexKind::kPageTable) index.table += request * index.table_stride;
    if (index.rows != nullptr) index.rows += request;
    if (index.indptr != nullptr) index.indptr += request;
  }
  PartialStep(const PartialStep&) = delete;

  // Runs `kernel` and compares its bits with those of `whole`, which it computed before.
  bool agrees(const AttentionFn& kernel, const BuiltCase& built, const TensorView& whole) {
    kernel(args_, built);
    const size_t row_bytes = static_cast<size_t>(whole.shape[2]) * size_of(whole.dtype);
    for (int64_t token = 0; token < args_.out.shape[0]; ++token)
      for (int64_t head = 0; head < args_.out.shape[1]; ++head)
        if (std::memcmp(args_.out[token][head].data, whole[first_token_ + token][head].data, row_bytes) != 0)
          return false;
    return true;
  }

 private:
  int32_t first_token_;
  std::vector<int32_t> cu_seqlen_q_, seqlen_kv_;
  Tensor out_;
  kernels::AttentionArgs args_;
};

// Calls fn() and returns its result, or the message of its exception.
template <class Fn>
std::string describe_problem(const Fn& fn) {
  try {
    return fn();
  } catch (const std::exception& error) {
    return std::string("threw: ") + error.what();
  }
}

template <class Kernel>
void run(std::string (*problem)(const Kernel&, const AttentionCase&), const Kernel& kernel,
         std::span<const AttentionCase> cases) {
  ASSERT_FALSE(cases.empty());
  // Further failing cases would repeat the same information.
  constexpr int kMaxReports = 8;
  int num_failed = 0;
  for (const AttentionCase& c : cases) {
    const std::string wrong = problem(kernel, c);
    if (!wrong.empty() && ++num_failed <= kMaxReports) ADD_FAILURE() << wrong << "\n  " << c;
  }
  EXPECT_EQ(num_failed, 0) << "of " << cases.size() << " cases";
}

}  // namespace

std::string conformance_problem(const AttentionFn& kernel, const AttentionCase& c) {
  return describe_problem([&] {
    BuiltCase built(c);
    return conforms(kernel, built, built.args);
  });
}

std::string conformance_problem(const MlaFn& kernel, const AttentionCase& c) {
  return describe_problem([&] {
    BuiltCase built(c);
    return conforms(kernel, built, built.mla_args);
  });
}

std::string page_order_problem(const AttentionFn& kernel, const AttentionCase& c) {
  return describe_problem([&]() -> std::string {
    AttentionCase ordered = c;
    ordered.page_order = PageOrder::kSequential;
    const auto sequential = result_of_run(kernel, ordered);
    for (PageOrder order : {PageOrder::kShuffled, PageOrder::kInterleaved, PageOrder::kReversed}) {
      ordered.page_order = order;
      if (result_of_run(kernel, ordered) != sequential)
        return "other bits with the pages in another order, " + std::string(literal_name(order));
    }
    return "";
  });
}

std::string batch_invariance_problem(const AttentionFn& kernel, const AttentionCase& c) {
  ensure(c.split_rule == kernels::SplitRule::kFixed && c.causal && c.tree == TreeShape::kNone,
         "batch invariance is about fixed splits and causal sequences: ", c);
  return describe_problem([&]() -> std::string {
    AttentionCase other_workers = c;
    other_workers.num_workers = c.num_workers == 1 ? 5 : 1;
    if (result_of_run(kernel, other_workers) != result_of_run(kernel, c))
      return "other bits with " + std::to_string(other_workers.num_workers) + " workers";
    BuiltCase built(c);
    kernel(built.args, built);
    const TensorView whole = built.args.out;
    for (int request = 0; request < static_cast<int>(c.requests.size()); ++request) {
      const int32_t seqlen_q = c.requests[static_cast<size_t>(request)].seqlen_q;
      // The request by itself, in two steps, and with its last token decoded.
      const std::pair<int32_t, int32_t> steps[] = {
          {0, seqlen_q}, {0, seqlen_q / 2}, {seqlen_q / 2, seqlen_q}, {seqlen_q - 1, seqlen_q}};
      for (const auto& [begin, end] : steps) {
        if (begin < 0 || begin == end) continue;
        if (!PartialStep(built.args, request, begin, end).agrees(kernel, built, whole))
          return "tokens " + std::to_string(begin) + " to " + std::to_string(end - 1) + " of request " +
                 std::to_string(request) + " as a step of their own: other bits than in the batch";
      }
    }
    return "";
  });
}

void run_conformance(const AttentionFn& kernel, std::span<const AttentionCase> cases) {
  run<AttentionFn>(conformance_problem, kernel, cases);
}

void run_mla_conformance(const MlaFn& kernel, std::span<const AttentionCase> cases) {
  run<MlaFn>(conformance_problem, kernel, cases);
}

void run_page_order(const AttentionFn& kernel, std::span<const AttentionCase> cases) {
  run<AttentionFn>(page_order_problem, kernel, cases);
}

void run_batch_invariance(const AttentionFn& kernel, std::span<const AttentionCase> cases) {
  run<AttentionFn>(batch_invariance_problem, kernel, cases);
}

}  // namespace attend::conformance
