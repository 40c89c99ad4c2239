#include "attend/kernels/merge.h"

#include "attend/kernels/check_plan.h"
#include "attend/kernels/cpu/merge.h"

namespace attend::kernels {

void merge(const MergeArgs& args, Stream& stream) {
  check(args);
  require_cpu("merge", stream);
  cpu::merge(args, cpu::detect_isa());
}

void merge_splits(const MergeSplitsArgs& args, Stream& stream) {
  check(args);
  require_cpu("merge_splits", stream);
  cpu::merge_splits(args, cpu::detect_isa());
}

}  // namespace attend::kernels
