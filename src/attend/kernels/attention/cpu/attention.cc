#include "attend/kernels/attention/cpu/attention.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <sstream>

#include "attend/base/parallel.h"
#include "attend/kernels/attention/cpu/attention_kernel.h"
#include "attend/kernels/attention/cpu/attention_problem.h"
#include "attend/kernels/common/kernel_choices.h"
#include "attend/kernels/kv_store/selected_rows.h"

namespace attend::kernels::cpu {
namespace {

bool is_intel() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

// Writes tokens at or past cu_seqlen_q[num_reqs]: output 0, LSE -inf.
void write_padding(const AttentionProblem& problem) {
  const int64_t num_tokens = problem.out.shape[0];
  for (int64_t token = problem.batch.cu_seqlen_q.back(); token < num_tokens; ++token)
    for (int head = 0; head < problem.num_q_heads; ++head) {
      const TensorView row = problem.out[token][head];
      std::memset(row.data, 0, row.num_bytes());
      if (!problem.lse.empty()) *problem.lse[token][head].as<float>() = kEmptyLse;
    }
}

// Calls fn(task, worker) for every task. Each of `num_workers` workers takes the next task when it has
// finished one. The number of threads that run the workers has no effect on results.
template <class Fn>
void for_each_task(int64_t num_tasks, int num_workers, const Fn& fn) {
  std::atomic<int64_t> next = 0;
  parallel_for(std::min<int64_t>(num_tasks, num_workers), [&](int64_t worker, int) {
    for (int64_t task = next++; task < num_tasks; task = next++) fn(task, static_cast<int>(worker));
  });
}

std::string_view kernel_name(Isa isa, const AttentionProblem& problem, int num_rows) {
  if constexpr (kX86Kernels)
    if (isa == Isa::kAmx) switch (amx_path(problem, num_rows)) {
        case AmxPath::kTiles:
          return "amx tiles";
        case AmxPath::kSkinny:
          return "amx skinny";
        case AmxPath::kVectors:
          return to_string(Isa::kAvx512);
      }
  return to_string(isa);
}

void record_kernels(const AttentionProblem& problem, const Work& work, Isa isa) {
  for (const WorkItem& item : work.items) {
    const int num_rows = (item.q_end - item.q_begin) * problem.group();
    std::ostringstream text;
    text << num_rows << " rows of a KV head, head dims " << problem.k.dim << "/" << problem.v.dim << ", "
         << problem.q_dtype << " with K/V in "
         << cache_dtype_name(problem.scaled_rows ? DType::kU8 : problem.kv_dtype);
    record_choice({.op = "attention",
                   .problem = text.str(),
                   .kernel = std::string(kernel_name(isa, problem, num_rows)),
                   .why = "the best instruction set of this CPU"});
  }
}

void run(const AttentionProblem& problem, AttentionPlan& plan, Isa isa) {
  const AttentionKernel kernel = attention_kernel(isa, problem.q_dtype, problem.kv_dtype);
  const Work& work = plan.work();
  const auto num_items = static_cast<int64_t>(work.items.size());
  const auto num_merges = static_cast<int64_t>(work.merges.size());
  const TileShape shape = TileShape::make(plan.limits());
  if (records_choices()) record_kernels(problem, work, isa);
  write_padding(problem);
  // Processes items of one head after another, so that workers share the pages of one head.
  for_each_task(num_items * problem.num_kv_heads, plan.limits().num_workers, [&](int64_t task, int worker) {
    TileScratch scratch(shape, plan.scratch(worker));
    const auto item = static_cast<size_t>(task % num_items);
    kernel.attend_item(problem, work.items[item], static_cast<int>(task / num_items), scratch);
  });
  for_each_task(num_merges, plan.limits().num_workers, [&](int64_t merge, int worker) {
    kernel.merge_token(problem, work.merges[static_cast<size_t>(merge)],
                       static_cast<float*>(plan.scratch(worker)));
  });
}

}  // namespace

Isa attention_isa() {
  const Isa highest = detect_isa();
  return highest == Isa::kAvx512Bf16 && is_intel() ? Isa::kAvx512 : highest;
}

AttentionKernel attention_kernel(Isa isa, DType q, DType kv) {
  if constexpr (kX86Kernels) {
    if (isa == Isa::kAmx) return attention_kernel_amx(q, kv);
    if (isa == Isa::kAvx512Bf16) return attention_kernel_avx512bf16(q, kv);
    if (isa == Isa::kAvx512) return attention_kernel_avx512(q, kv);
    if (isa == Isa::kAvx2) return attention_kernel_avx2(q, kv);
  }
  return attention_kernel_portable(q, kv);
}

void attention(const AttentionArgs& args, AttentionPlan& plan, Isa isa) {
  run(make_problem(args, plan), plan, isa);
}

void mla(const MlaArgs& args, AttentionPlan& plan, Isa isa) { run(make_problem(args, plan), plan, isa); }

}  // namespace attend::kernels::cpu
