#include "attend/tensor/driver_version.h"

#include <string>

#include "attend/base/error.h"

namespace attend::cuda {
namespace {

int driver_major(int version) { return version / 1000; }

std::string to_text(int version) {
  return std::to_string(driver_major(version)) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

void require_driver(std::string_view what, int driver_version, int runtime_version) {
  if (driver_version == 0)
    fail(ErrorCode::kUnsupported, what, ": this machine has no NVIDIA driver; attend was built with CUDA ",
         to_text(runtime_version), ": needs a driver of CUDA ", driver_major(runtime_version), ".0 or later");
  if (driver_major(driver_version) >= driver_major(runtime_version)) return;
  fail(ErrorCode::kUnsupported, what, ": the driver serves CUDA ", to_text(driver_version),
       ", attend was built with ", to_text(runtime_version), ": needs a driver of CUDA ",
       driver_major(runtime_version), ".0 or later");
}

void require_gpu(Device device, int num_gpus, std::string_view what) {
  const std::string expected = num_gpus == 1
                                   ? " GPU; expected cuda:0"
                                   : " GPUs; expected cuda:0 to cuda:" + std::to_string(num_gpus - 1);
  require(device.index >= 0 && device.index < num_gpus, what, " ", device, ": this machine has ", num_gpus,
          expected);
}

}  // namespace attend::cuda
