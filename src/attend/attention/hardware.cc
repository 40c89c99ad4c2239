#include <fstream>
#include <string>
#include <thread>

#include "attend/attention/resolver.h"

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

}  // namespace

Hardware detect_cpu() {
  const unsigned cores = std::thread::hardware_concurrency();
  return {.architecture = Architecture::kCpu,
          .name = cpu_name(),
          .num_workers = cores > 0 ? static_cast<int>(cores) : 1};
}

}  // namespace attend
