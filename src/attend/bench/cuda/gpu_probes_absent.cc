// Stubs of the GPU probes for builds without CUDA; every call throws.
#include "attend/base/without_cuda.h"
#include "attend/bench/cuda/gpu_probes.h"

namespace attend::bench {
namespace {

[[noreturn]] void throw_without_cuda(std::string_view what) {
  fail(ErrorCode::kUnsupported, what, " of a GPU: ", kWithoutCuda);
}

}  // namespace

GpuFacts gpu_facts(Device) { throw_without_cuda("facts"); }
double fastest_read(Stream&) { throw_without_cuda("fastest read"); }

}  // namespace attend::bench
