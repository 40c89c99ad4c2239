#include "attend/cli/version.h"

#include <fmt/format.h>

#include "attend/attention/resolver.h"
#include "attend/base/version.h"
#include "attend/cli/build_info.h"
#include "attend/kernels/common/cpu/isa.h"
#include "attend/tensor/cuda.h"

namespace attend::cli {

std::string version_text() {
  const Hardware cpu = detect_cpu();
  std::string text =
      fmt::format("attend {} (git {})\ncpu     {}, {} cores, {}\n", version(), kGitHash, cpu.name,
                  cpu.num_workers, kernels::cpu::to_string(kernels::cpu::detect_isa()));
  if (!kHasCuda) return text + "cuda    not in this build";
  const int num_gpus = cuda::device_count();
  if (num_gpus == 0) return text + "cuda    no GPU found";
  for (int i = 0; i < num_gpus; ++i) {
    const cuda::DeviceInfo gpu = cuda::device_info({DeviceType::kCuda, i});
    text += fmt::format("{}cuda:{}  {}, {}.{}, {} SMs, {:.0f} GB", i > 0 ? "\n" : "", i, gpu.name, gpu.major,
                        gpu.minor, gpu.num_sms, static_cast<double>(gpu.total_bytes) / 1e9);
  }
  return text;
}

}  // namespace attend::cli
