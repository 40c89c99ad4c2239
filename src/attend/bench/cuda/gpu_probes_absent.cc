// The probes of a build without CUDA: there are none.
#include "attend/base/without_cuda.h"
#include "attend/bench/cuda/gpu_probes.h"

namespace attend::bench {
namespace {

[[noreturn]] void refuse(std::string_view what) {
  fail(ErrorCode::kUnsupported, what, " of a GPU: ", kWithoutCuda);
}

}  // namespace

GpuFacts gpu_facts(Device) { refuse("facts"); }
double fastest_read(Stream&) { refuse("fastest read"); }

}  // namespace attend::bench
