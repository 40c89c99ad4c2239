// Selection of a kernel from a family's table, used by the families gemm, attention and moe. Pure: depends
// only on its arguments.
//
// A row has a name, supports(problem, gpu), is_faster(problem, gpu, tuning) and why. `supports` returns true
// if the kernel supports the problem. `is_faster` returns true if the row was measured to be faster than all
// rows below it that support the problem. The order of the rows is the order of preference. Thresholds are
// members of the family's tuning record.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "attend/base/error.h"
#include "attend/kernels/common/gpu_facts.h"
#include "attend/kernels/common/kernel_choices.h"

namespace attend::kernels {

// Tuning record of a family for GPUs of one compute capability.
template <class Tuning>
struct GpuTuning {
  std::string_view gpu;
  int major, minor;
  Tuning tuning;
};

// Returns the record of the GPU's compute capability or, if there is none, the last one, which is the
// default.
template <class Tuning, size_t kNumRecords>
constexpr const Tuning& find_tuning(const std::array<GpuTuning<Tuning>, kNumRecords>& records,
                                    const GpuFacts& gpu) {
  static_assert(kNumRecords > 0);
  for (const GpuTuning<Tuning>& record : records)
    if (record.major == gpu.major && record.minor == gpu.minor) return record.tuning;
  return records.back().tuning;
}

// Returns the first row that supports the problem and is faster. Throws Error(kUnsupported) if there is none.
template <class Row, class Problem, class Tuning>
const Row& first_row(std::string_view op, std::span<const Row> rows, const Problem& problem,
                     const GpuFacts& gpu, const Tuning& tuning) {
  for (const Row& row : rows)
    if (row.supports(problem, gpu) && row.is_faster(problem, gpu, tuning)) return row;
  fail(ErrorCode::kUnsupported, op, ": no kernel supports the problem");
}

// Returns true if row i has the i-th kernel of the family's enum, for all rows.
template <class Rows>
constexpr bool are_in_kernel_order(const Rows& rows) {
  for (size_t i = 0; i < rows.size(); ++i)
    if (static_cast<size_t>(rows[i].kernel) != i) return false;
  return true;
}

// Reports the choice to all listeners (kernel_choices.h). `describe` returns the problem as text; it is
// called only if there are listeners.
template <class Row, class Describe>
void report_choice(std::string_view op, const Row& row, const Describe& describe) {
  if (!records_choices()) return;
  record_choice({.op = std::string(op),
                 .problem = describe(),
                 .kernel = std::string(row.name),
                 .why = std::string(row.why)});
}

}  // namespace attend::kernels
