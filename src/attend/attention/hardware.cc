#include <fstream>
#include <string>
#include <thread>

#include "attend/attention/resolver.h"
#include "attend/base/error.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

// "model name : Intel(R) Xeon(R) ..." of /proc/cpuinfo.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  return "unknown CPU";
}

Architecture get_architecture(const cuda::DeviceInfo& gpu, Device device) {
  switch (gpu.major) {
    case 8:
      return gpu.minor == 9 ? Architecture::kAda : Architecture::kAmpere;
    case 9:
      return Architecture::kHopper;
    case 10:
    case 11:
      return Architecture::kBlackwell;
    case 12:
      return Architecture::kBlackwellGeforce;
    default:
      fail(ErrorCode::kUnsupported, "device ", device, ": ", gpu.name, " has compute capability ", gpu.major,
           ".", gpu.minor, ": attend has kernels for 8.0 to 12");
  }
}

}  // namespace

Hardware detect_hardware(Device device) {
  if (device.type == DeviceType::kCpu) return detect_cpu();
  return make_hardware(cuda::device_info(device), device);
}

Hardware make_hardware(const cuda::DeviceInfo& gpu, Device device) {
  return {.architecture = get_architecture(gpu, device), .name = gpu.name, .num_workers = gpu.num_sms};
}

Hardware detect_cpu() {
  const unsigned cores = std::thread::hardware_concurrency();
  return {.architecture = Architecture::kCpu,
          .name = cpu_name(),
          .num_workers = cores > 0 ? static_cast<int>(cores) : 1};
}

}  // namespace attend
