#include "attend/kernels/attention/merge.h"

#include "attend/kernels/attention/cpu/merge.h"
#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/common/on_gpu.h"

namespace attend::kernels {

void merge(const MergeArgs& args, Stream& stream) {
  check(args);
  if (const OnGpu gpu(stream); gpu) return cuda::merge(args, stream);
  cpu::merge(args, cpu::detect_isa());
}

void merge_splits(const MergeSplitsArgs& args, Stream& stream) {
  check(args);
  if (const OnGpu gpu(stream); gpu) return cuda::merge_splits(args, stream);
  cpu::merge_splits(args, cpu::detect_isa());
}

}  // namespace attend::kernels
